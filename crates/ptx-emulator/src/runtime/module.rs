//! Modules: PTX text made ready to run.
//!
//! Every kernel of a module is lowered when it loads and not when it is first asked for: an instruction that is not known shows at once and in
//! every test, and not with the one user who takes another path.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Machine;
use super::error::{Code, Error, Result};
use super::handle::{Context, Function, Module};
use super::state::{Origin, Owned, State};
use crate::device::{self, runs_target};
use crate::program::Program;
use crate::ptx::ast::{self, Space, Variable};
use crate::{lower, ptx};

/// A loaded module.
#[derive(Debug)]
pub(crate) struct ModuleState {
    pub(crate) context: Context,
    /// Kernels by name.
    pub(crate) functions: BTreeMap<String, Function>,
    /// Variables by name: address and bytes.
    pub(crate) globals: BTreeMap<String, (u64, u64)>,
}

/// A kernel.
#[derive(Debug)]
pub(crate) struct FunctionState {
    pub(crate) module: Module,
    pub(crate) context: Context,
    pub(crate) name: Arc<std::ffi::CStr>,
    pub(crate) program: Arc<Program>,
    /// PTX version and target, as `CU_FUNC_ATTRIBUTE_PTX_VERSION` and `_BINARY_VERSION` tell them.
    pub(crate) versions: (i32, i32),
    pub(crate) const_bytes: u64,
    /// Dynamic shared memory that a launch may ask for.
    pub(crate) max_dynamic: u32,
    pub(crate) carveout: i32,
}

/// Mistakes of a module that its error shows.
const SHOWN: usize = 5;

impl Machine {
    /// Loads PTX text into a context.
    ///
    /// # Errors
    /// PTX that is not understood (`CUDA_ERROR_INVALID_PTX`, with line and text), is for a later device, or from a later compiler than the
    /// driver knows; no room for its variables.
    pub fn load_module(&self, context: Context, text: &str) -> Result<Module> {
        let arch = {
            let mut state = self.lock();
            let device = state.context(context)?.device;
            state.not_while_capturing("loading a module")?;
            state.counts.modules += 1;
            let count = state.counts.modules;
            if let Some(nth) = self.shared.settings.faults.module.iter().find(|nth| nth.strikes(count)) {
                return Code(nth.code).error("made to fail by the settings");
            }
            self.device(device)?.model.arch()
        };
        if !text.contains(".version") {
            return Code::INVALID_IMAGE.error("loading a module: this is no PTX: it has no .version");
        }
        let invalid = |what: String| Error::new(Code::INVALID_PTX, format!("loading PTX: {what}"));
        let tree = ptx::parse(text).map_err(|error| invalid(error.to_string()))?;
        self.check_version(&tree)?;
        let target = tree.target.first().map_or("", String::as_str);
        runs_target(arch, target).map_err(|fault| invalid(fault.message))?;
        // A driver compiles before it runs: what its compiler refuses must not load here either.
        ptx::verify(&tree).map_err(|errors| {
            let sentences: Vec<String> = errors.iter().take(SHOWN).map(ToString::to_string).collect();
            invalid(sentences.join("\n"))
        })?;
        let mut allocated = Vec::new();
        let loaded = self.load_tree(context, &tree, &mut allocated);
        if loaded.is_err() {
            let mut state = self.lock();
            for address in allocated {
                self.release_memory(&mut state, address);
            }
        }
        loaded
    }

    fn load_tree(&self, context: Context, tree: &ast::Module, allocated: &mut Vec<u64>) -> Result<Module> {
        let invalid = |what: String| Error::new(Code::INVALID_PTX, format!("loading PTX: {what}"));
        let module = Module(self.lock().number());
        let mut globals = BTreeMap::new();
        let mut const_bytes = 0;
        for variable in tree.variables.iter().filter(|v| matches!(v.space, Space::Global | Space::Const)) {
            let bytes = variable.len.map(|len| len.saturating_mul(variable.ty.size()));
            let Some(bytes) = bytes.filter(|_| variable.linkage != ast::Linkage::Extern) else {
                return Err(invalid(format!(
                    "line {}: extern {} is defined nowhere",
                    variable.line, variable.name
                )));
            };
            if variable.managed {
                return Code::NOT_SUPPORTED
                    .error(format!("loading PTX: {} is managed memory", variable.name));
            }
            if variable.space == Space::Const {
                const_bytes += bytes;
                if const_bytes > device::CONSTANT_BYTES {
                    return Err(invalid(format!(
                        "{const_bytes} bytes of constants; a module may have 65536"
                    )));
                }
            }
            let address = self.reserve(context, bytes.max(1), Origin::Module(module))?;
            allocated.push(address);
            globals.insert(variable.name.clone(), (address, bytes));
        }
        for variable in &tree.variables {
            if let Some((address, bytes)) = globals.get(&variable.name) {
                let init = initial(variable, *bytes, &globals).map_err(invalid)?;
                self.write_memory(*address, &init)?;
            }
        }
        let symbols = |name: &str| globals.get(name).map(|(address, _)| *address);
        let entries = tree.functions.iter().filter(|function| function.entry && function.body.is_some());
        let mut programs = Vec::new();
        for entry in entries {
            let program = lower::lower(tree, &entry.name, &symbols)
                .map_err(|error| invalid(format!("kernel {}: {error}", entry.name)))?;
            programs.push((entry.name.clone(), Arc::new(program)));
        }
        let mut state = self.lock();
        let versions = versions(tree);
        let mut functions = BTreeMap::new();
        for (name, program) in programs {
            let function = Function(state.number());
            let c_name = std::ffi::CString::new(name.clone()).unwrap_or_default();
            let found = FunctionState {
                module,
                context,
                name: c_name.into(),
                max_dynamic: 49152u32.saturating_sub(program.static_shared),
                program,
                versions,
                const_bytes,
                carveout: -1,
            };
            state.functions.insert(function, found);
            functions.insert(name, function);
        }
        state.modules.insert(module, ModuleState { context, functions, globals });
        Ok(module)
    }

    /// A driver reads PTX of its own time and before.
    fn check_version(&self, tree: &ast::Module) -> Result<()> {
        let driver = self.shared.settings.driver_version;
        let (major, minor) = (driver / 1000, driver % 1000 / 10);
        let newest = match (major, minor) {
            (..=11, _) => (major - 4, minor),
            (12, 0..=5) => (8, minor),
            (12, _) => (8, minor - 1),
            _ => (major - 4, minor),
        };
        let given = (tree.version.0 as i32, tree.version.1 as i32);
        if given > newest {
            return Code::UNSUPPORTED_PTX_VERSION.error(format!(
                "loading PTX: it is of version {}.{}, and a driver of version {driver} reads up to {}.{}; compile with an older toolkit, or \
                 emulate a newer driver (PTX_EMU_DRIVER)",
                given.0, given.1, newest.0, newest.1
            ));
        }
        Ok(())
    }

    /// Unloads a module, after what is queued on its device.
    ///
    /// # Errors
    /// No such module; a capture that forbids it.
    pub fn unload_module(&self, module: Module) -> Result<()> {
        let mut state = self.lock();
        let Some(context) = state.modules.get(&module).map(|module| module.context) else {
            return Code::INVALID_HANDLE.error(format!("{module:x?} is no module, or was unloaded"));
        };
        state.not_while_capturing("unloading a module")?;
        let goals = state.tasks.which(|task| task.context == context);
        let mut state = self.run_until(state, &goals);
        state.drop_module(self, module);
        Ok(())
    }

    /// A kernel of a module.
    ///
    /// # Errors
    /// No such module, or no such kernel in it (`CUDA_ERROR_NOT_FOUND`).
    pub fn function(&self, module: Module, name: &str) -> Result<Function> {
        let state = self.lock();
        let Some(found) = state.modules.get(&module) else {
            return Code::INVALID_HANDLE.error(format!("{module:x?} is no module, or was unloaded"));
        };
        found.functions.get(name).copied().ok_or_else(|| {
            let known = found.functions.keys().take(20).cloned().collect::<Vec<_>>().join(", ");
            Error::new(Code::NOT_FOUND, format!("the module has no kernel {name}; it has: {known}"))
        })
    }

    /// All kernels of a module, by name.
    ///
    /// # Errors
    /// No such module.
    pub fn functions(&self, module: Module) -> Result<Vec<(String, Function)>> {
        match self.lock().modules.get(&module) {
            Some(found) => Ok(found.functions.iter().map(|(name, f)| (name.clone(), *f)).collect()),
            None => Code::INVALID_HANDLE.error(format!("{module:x?} is no module, or was unloaded")),
        }
    }

    /// Address and bytes of a module's variable.
    ///
    /// # Errors
    /// No such module or variable.
    pub fn global(&self, module: Module, name: &str) -> Result<(u64, u64)> {
        let state = self.lock();
        let Some(found) = state.modules.get(&module) else {
            return Code::INVALID_HANDLE.error(format!("{module:x?} is no module, or was unloaded"));
        };
        found
            .globals
            .get(name)
            .copied()
            .ok_or_else(|| Error::new(Code::NOT_FOUND, format!("the module has no variable {name}")))
    }
}

impl State {
    /// Forgets a module with its functions and variables.
    pub(super) fn drop_module(&mut self, machine: &Machine, module: Module) {
        let Some(gone) = self.modules.remove(&module) else { return };
        for function in gone.functions.values() {
            self.functions.remove(function);
        }
        for (address, _) in gone.globals.values() {
            machine.release_memory(self, *address);
        }
    }

    pub(super) fn note_owned(&mut self, address: u64, context: Context, device: u32, origin: Origin) {
        self.owned.insert(address, Owned { context, device, origin, freeing: false, flags: 0 });
    }
}

/// The bytes of a variable, with the addresses of others put in.
fn initial(
    variable: &Variable,
    bytes: u64,
    globals: &BTreeMap<String, (u64, u64)>,
) -> std::result::Result<Vec<u8>, String> {
    let line = variable.line;
    let name = &variable.name;
    let bytes = usize::try_from(bytes).map_err(|_| format!("line {line}: {name} is too large"))?;
    if variable.init.len() > bytes {
        return Err(format!("line {line}: {name} has more initial bytes than it is long"));
    }
    let mut data = variable.init.clone();
    data.resize(bytes, 0);
    for relocation in &variable.relocations {
        let (address, _) = globals.get(&relocation.symbol).ok_or_else(|| {
            format!("line {line}: {name} holds the address of {}, which is no variable", relocation.symbol)
        })?;
        let value = address.wrapping_add_signed(relocation.addend).wrapping_shr(relocation.shift);
        let at = usize::try_from(relocation.at).unwrap_or(usize::MAX);
        let size = (relocation.size as usize).min(8);
        let target = at.checked_add(size).and_then(|end| data.get_mut(at..end));
        let target =
            target.ok_or_else(|| format!("line {line}: an address in {name} goes beyond its end"))?;
        target.copy_from_slice(&value.to_le_bytes()[..size]);
    }
    Ok(data)
}

fn versions(tree: &ast::Module) -> (i32, i32) {
    let digits: String =
        tree.target.first().map(|t| t.chars().filter(char::is_ascii_digit).collect()).unwrap_or_default();
    let version = tree.version.0 * 10 + tree.version.1;
    (i32::try_from(version).unwrap_or(0), digits.parse().unwrap_or(0))
}
