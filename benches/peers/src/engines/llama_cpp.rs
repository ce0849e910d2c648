//! llama.cpp, built from source by `llama-cpp-sys-2` and used by its C interface, as its own benchmark uses it.
//!
//! Two of its settings change speeds in either direction, by model and phase: whether weights are repacked into layouts of
//! its own at load, and whether attention is the fused one. All four combinations are tried. (Plain attention does not take
//! quantised values and is left out with them.) Steps are of up to 512 tokens, and threads are OpenMP's, as its own builds have them.
#![allow(unsafe_code)]

use super::{Cache, Running, Start, best};
use crate::{Result, phase};
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr;
use std::time::Instant;

const FUSED: &str = "flash attention";

/// Each is two words, which [`open`] looks for.
pub(super) const SETTINGS: &[&str] = &[
    "repacked, flash attention",
    "repacked, plain attention",
    "as stored, flash attention",
    "as stored, plain attention",
];

/// How attention is done makes no difference to a start.
pub(super) const STARTS: &[&str] = &[SETTINGS[0], SETTINGS[2]];

/// Tokens of a step.
const STEP: u32 = 512;

struct Model {
    model: *mut sys::llama_model,
    start: Start,
}

struct Context {
    context: *mut sys::llama_context,
    vocabulary: usize,
}

struct LlamaCpp {
    // Freed in this order.
    one: Context,
    /// Each with its number of sequences and its room in tokens.
    several: Vec<(usize, usize, Context)>,
    model: Model,
    past: usize,
}

pub(super) fn open(path: &Path, start: &Start) -> Result<Box<dyn Running>> {
    let file = CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: the interface is called as its header asks; the name outlives the call.
    let model = unsafe {
        sys::llama_log_set(Some(quiet), ptr::null_mut());
        sys::llama_backend_init();
        let mut params = sys::llama_model_default_params();
        params.use_extra_bufts = start.setting.contains("repacked");
        sys::llama_model_load_from_file(file.as_ptr(), params)
    };
    if model.is_null() {
        return Err(format!("llama.cpp cannot load {}", path.display()).into());
    }
    let model = Model { model, start: start.clone() };
    let one = Context::new(&model, 1, start.context)?;
    Ok(Box::new(LlamaCpp { one, several: Vec::new(), model, past: 0 }))
}

/// Errors alone are worth reading.
unsafe extern "C" fn quiet(level: sys::ggml_log_level, text: *const c_char, _: *mut c_void) {
    // Above errors is only what continues a line.
    if level == sys::GGML_LOG_LEVEL_ERROR {
        // SAFETY: the library passes a string that ends with a zero.
        eprint!("llama.cpp: {}", unsafe { CStr::from_ptr(text) }.to_string_lossy());
    }
}

impl Context {
    /// With room for `tokens`, all sequences together.
    fn new(model: &Model, sequences: usize, tokens: usize) -> Result<Self> {
        let tokens = u32::try_from(tokens)?;
        // SAFETY: the model is alive, and outlives what is made of it.
        unsafe {
            let mut params = sys::llama_context_default_params();
            params.n_ctx = tokens;
            (params.n_batch, params.n_ubatch) = (tokens, STEP);
            params.n_seq_max = sequences as u32;
            params.n_threads = model.start.threads as i32;
            params.n_threads_batch = params.n_threads;
            params.flash_attn_type = match model.start.setting.contains(FUSED) {
                true => sys::LLAMA_FLASH_ATTN_TYPE_ENABLED,
                false => sys::LLAMA_FLASH_ATTN_TYPE_DISABLED,
            };
            if model.start.cache == Cache::Q8 {
                (params.type_k, params.type_v) = (sys::GGML_TYPE_Q8_0, sys::GGML_TYPE_Q8_0);
            }
            let context = sys::llama_init_from_model(model.model, params);
            if context.is_null() {
                return Err("llama.cpp makes no context of this size".into());
            }
            let vocabulary = sys::llama_vocab_n_tokens(sys::llama_model_get_vocab(model.model));
            Ok(Self { context, vocabulary: usize::try_from(vocabulary)? })
        }
    }

    fn clear(&mut self) {
        // SAFETY: the context is alive.
        unsafe { sys::llama_memory_clear(sys::llama_get_memory(self.context), false) };
    }

    /// Runs a step. A row: token, position, sequence, whether its logits are wanted.
    fn step(&mut self, rows: &[(u32, usize, usize, bool)]) -> Result<()> {
        let mut tokens: Vec<_> = rows.iter().map(|r| r.0 as sys::llama_token).collect();
        let mut positions: Vec<_> = rows.iter().map(|r| r.1 as sys::llama_pos).collect();
        let mut counts = vec![1; rows.len()];
        let mut names: Vec<_> = rows.iter().map(|r| r.2 as sys::llama_seq_id).collect();
        let mut sequences: Vec<*mut sys::llama_seq_id> = names.iter_mut().map(|n| &raw mut *n).collect();
        let mut wanted: Vec<_> = rows.iter().map(|r| i8::from(r.3)).collect();
        let batch = sys::llama_batch {
            n_tokens: i32::try_from(rows.len())?,
            token: tokens.as_mut_ptr(),
            embd: ptr::null_mut(),
            pos: positions.as_mut_ptr(),
            n_seq_id: counts.as_mut_ptr(),
            seq_id: sequences.as_mut_ptr(),
            logits: wanted.as_mut_ptr(),
        };
        // SAFETY: every array has `n_tokens` elements and outlives the call.
        match unsafe { sys::llama_decode(self.context, batch) } {
            0 => Ok(()),
            code => Err(format!("llama.cpp fails to decode: {code}").into()),
        }
    }

    /// The best token after row `i` of the last step.
    fn best(&mut self, i: usize) -> Result<u32> {
        // SAFETY: logits are null or as many as the vocabulary has tokens, and stay until the next step.
        let logits = unsafe {
            let logits = sys::llama_get_logits_ith(self.context, i32::try_from(i)?);
            if logits.is_null() {
                return Err("llama.cpp has no logits for a row".into());
            }
            std::slice::from_raw_parts(logits, self.vocabulary)
        };
        best(logits)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: nothing made of the context is left.
        unsafe { sys::llama_free(self.context) };
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: contexts were dropped before.
        unsafe { sys::llama_model_free(self.model) };
    }
}

impl Running for LlamaCpp {
    fn about(&self) -> String {
        format!("llama.cpp (llama-cpp-sys-2 0.1.161, {})", self.model.start.setting)
    }

    fn vocabulary(&self) -> usize {
        self.one.vocabulary
    }

    fn clear(&mut self) -> Result<()> {
        self.past = 0;
        self.one.clear();
        Ok(())
    }

    fn forward(&mut self, ids: &[u32]) -> Result<u32> {
        let last = ids.len().saturating_sub(1);
        let rows: Vec<_> = ids.iter().enumerate().map(|(i, id)| (*id, self.past + i, 0, i == last)).collect();
        self.past += ids.len();
        self.one.step(&rows)?;
        self.one.best(last)
    }

    fn together(&mut self, prompts: &[Vec<u32>], n: usize) -> Result<f64> {
        let tokens = prompts.iter().map(Vec::len).max().unwrap_or(0) + n;
        let room = phase::shared(prompts.len(), tokens);
        let sequences = prompts.len();
        let place = match self.several.iter().position(|s| s.0 == sequences && s.1 >= room) {
            Some(place) => place,
            None => {
                self.several.retain(|s| s.0 != sequences);
                self.several.push((sequences, room, Context::new(&self.model, sequences, room)?));
                self.several.len() - 1
            }
        };
        let context = &mut self.several[place].2;
        context.clear();
        let mut drawn = Vec::new();
        for (s, prompt) in prompts.iter().enumerate() {
            let last = prompt.len().saturating_sub(1);
            let rows: Vec<_> = prompt.iter().enumerate().map(|(i, id)| (*id, i, s, i == last)).collect();
            context.step(&rows)?;
            drawn.push(context.best(last)?);
        }
        let start = Instant::now();
        for i in 0..n {
            let rows: Vec<_> =
                drawn.iter().enumerate().map(|(s, id)| (*id, prompts[s].len() + i, s, true)).collect();
            context.step(&rows)?;
            for (s, id) in drawn.iter_mut().enumerate() {
                *id = context.best(s)?;
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }
}

/// The logits of all tokens, one row behind the other, everything in single precision.
#[cfg(test)]
fn logits(file: &Path, ids: &[u32]) -> Vec<f32> {
    let name = CString::new(file.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the interface is called as its header asks; logits are read before the context is freed, and that before its model.
    unsafe {
        sys::llama_log_set(Some(quiet), ptr::null_mut());
        sys::llama_backend_init();
        let mut params = sys::llama_model_default_params();
        params.use_extra_bufts = false;
        let model = sys::llama_model_load_from_file(name.as_ptr(), params);
        assert!(!model.is_null(), "llama.cpp cannot load {}", file.display());
        let mut params = sys::llama_context_default_params();
        (params.n_ctx, params.n_batch, params.n_ubatch) = (256, 256, 256);
        (params.n_threads, params.n_threads_batch) = (1, 1);
        (params.type_k, params.type_v) = (sys::GGML_TYPE_F32, sys::GGML_TYPE_F32);
        params.flash_attn_type = sys::LLAMA_FLASH_ATTN_TYPE_DISABLED;
        let context = sys::llama_init_from_model(model, params);
        assert!(!context.is_null(), "llama.cpp makes no context for {}", file.display());
        let vocabulary = sys::llama_vocab_n_tokens(sys::llama_model_get_vocab(model)) as usize;
        let mut context = Context { context, vocabulary };
        let rows: Vec<_> = ids.iter().enumerate().map(|(i, id)| (*id, i, 0, true)).collect();
        context.step(&rows).unwrap();
        let row = |i: usize| {
            let logits = sys::llama_get_logits_ith(context.context, i as i32);
            std::slice::from_raw_parts(logits, vocabulary)
        };
        let all = (0..ids.len()).flat_map(row).copied().collect();
        drop(context);
        sys::llama_model_free(model);
        all
    }
}

#[cfg(test)]
#[path = "llama_cpp_tests.rs"]
mod tests;
