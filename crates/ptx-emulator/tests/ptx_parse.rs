//! What the tree holds after reading.

use ptx_emulator::ptx::ast::{
    Function, Instruction, Linkage, Module, Operand, Space, Statement, Type, Variable,
};
use ptx_emulator::ptx::{Error, parse};

fn module(text: &str) -> Result<Module, Error> {
    parse(&format!(".version 8.0\n.target sm_80\n.address_size 64\n{text}"))
}

fn instructions<'m>(statements: &'m [Statement], found: &mut Vec<&'m Instruction>) {
    for statement in statements {
        match statement {
            Statement::Instruction(instruction) => found.push(instruction),
            Statement::Block(inner) => instructions(inner, found),
            _ => {}
        }
    }
}

/// The operands of one instruction.
fn operands(text: &str) -> Vec<Operand> {
    let module =
        module(&format!(".entry k() {{ {text} }}")).unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut found = Vec::new();
    instructions(module.functions[0].body.as_deref().unwrap_or(&[]), &mut found);
    found[0].operands.clone()
}

fn name(text: &str) -> Operand {
    Operand::Name(text.to_owned())
}

fn address(base: Operand, offset: i64) -> Operand {
    Operand::Address { base: Box::new(base), offset, extra: Vec::new() }
}

#[test]
fn constants_are_folded() {
    let cases: [(&str, u64); 22] = [
        ("7", 7),
        ("0x1F", 31),
        ("0777", 511),
        ("0b101", 5),
        ("5U", 5),
        ("-1", u64::MAX),
        ("~0", u64::MAX),
        ("!3", 0),
        ("(2+3)*4-1", 19),
        ("1 << 40", 1 << 40),
        ("-8 >> 1", (-4_i64).cast_unsigned()),
        ("-8U >> 1", 0x7FFF_FFFF_FFFF_FFFC),
        ("-7 / 2", (-3_i64).cast_unsigned()),
        ("-7 % 3", (-1_i64).cast_unsigned()),
        ("1 ? 2 : 3", 2),
        ("3 > 2 && 1 == 1", 1),
        ("-1 < 0U", 0),
        ("WARP_SZ * 2", 64),
        ("0xFFFFFFFFFFFFFFFF", u64::MAX),
        ("(.s64)-3", (-3_i64).cast_unsigned()),
        ("0x1e+3", 0x21),
        ("6 & 3 | 8 ^ 1", 11),
    ];
    for (text, value) in cases {
        assert_eq!(operands(&format!("mov.b64 %d, {text};"))[1], Operand::Integer(value), "{text}");
    }
    let floats =
        [("1.5", 1.5), ("-2.0", -2.0), (".5", 0.5), ("1e3", 1000.0), ("2.5e-1", 0.25), ("1.0+2.0", 3.0)];
    for (text, value) in floats {
        assert_eq!(
            operands(&format!("mov.f64 %d, {text};"))[1],
            Operand::Float64(f64::to_bits(value)),
            "{text}"
        );
    }
    assert_eq!(operands("mov.f32 %f, 0f3F800000;")[1], Operand::Float32(0x3F80_0000));
    assert_eq!(operands("mov.f64 %f, 0D3FF0000000000000;")[1], Operand::Float64(0x3FF0_0000_0000_0000));
}

#[test]
fn operands_keep_their_form() {
    assert_eq!(operands("ld.f32 %f, [%d+-8];"), [name("%f"), address(name("%d"), -8)]);
    assert_eq!(operands("ld.f32 %f, [16];")[1], address(Operand::Integer(16), 0));
    assert_eq!(operands("ld.f32 _, [a+2*4];"), [Operand::Sink, address(name("a"), 8)]);
    assert_eq!(operands("mov.u64 %d, a+8;")[1], Operand::NameOffset("a".to_owned(), 8));
    assert_eq!(operands("mov.f32 %f, %v.x;")[1], name("%v.x"));
    assert_eq!(operands("mov.b64 {%a, _}, %d;")[0], Operand::Vector(vec![name("%a"), Operand::Sink]));
    let pair = Operand::Pair(Box::new(name("%p")), Box::new(name("%q")));
    let not = Operand::Not(Box::new(name("%z")));
    assert_eq!(
        operands("setp.eq.and.s32 %p|%q, 1, 2, !%z;"),
        [pair, Operand::Integer(1), Operand::Integer(2), not]
    );
    let call = operands("call.uni (r), f, (a, -1), prototype;");
    assert_eq!(call[0], Operand::List(vec![name("r")]));
    assert_eq!(call[2], Operand::List(vec![name("a"), Operand::Integer(u64::MAX)]));
    assert_eq!(call[3], name("prototype"));
    let tensor = operands("cp.async.bulk.tensor.2d [%r], [%d, {%x, %y}], [%m];");
    let extra = vec![Operand::Vector(vec![name("%x"), name("%y")])];
    assert_eq!(tensor[1], Operand::Address { base: Box::new(name("%d")), offset: 0, extra });
}

#[test]
fn modifiers_are_words() {
    let module =
        module(".entry k() { @!%p ld .global.shared::cta.L2::128B .v4 .f32 %f, [a]; }").expect("PTX");
    let Some([Statement::Instruction(instruction)]) = module.functions[0].body.as_deref() else {
        panic!("{module:?}")
    };
    assert_eq!(instruction.opcode, "ld");
    assert_eq!(instruction.modifiers, ["global", "shared::cta", "L2::128B", "v4", "f32"]);
    let guard = instruction.guard.as_ref().expect("a guard");
    assert!(guard.negated && guard.register == "%p");
    assert_eq!(instruction.to_string(), "@!%p ld.global.shared::cta.L2::128B.v4.f32 %f, [a];");
}

fn variables(text: &str) -> Vec<Variable> {
    module(text).unwrap_or_else(|error| panic!("{error}")).variables
}

#[test]
fn initialisers_become_bytes() {
    let bytes = |text: &str| variables(text)[0].init.clone();
    assert_eq!(bytes(".global .u16 a[3] = {1, -1, 65537};"), [1, 0, 255, 255, 1, 0]);
    assert_eq!(bytes(".global .f32 a = 1.0;"), 1.0_f32.to_le_bytes());
    assert_eq!(bytes(".global .f64 a = 0f3F800000;"), 1.0_f64.to_le_bytes());
    assert_eq!(bytes(".global .u8 a[2][3] = {{1}, {2, 3}};"), [1, 0, 0, 2, 3]);
    assert_eq!(bytes(".global .v2 .u8 a[2] = {{1}, {2, 3}};"), [1, 0, 2, 3]);
    let open = &variables(".global .u8 a[][4] = {{1}, {2}, {3}};")[0];
    assert_eq!((open.len, open.init.len()), (Some(12), 9));
    assert_eq!(variables(".extern .shared .align 16 .b8 s[];")[0].len, None);
    assert_eq!(variables(".global .v4 .f32 a[2][3];")[0].len, Some(24));
}

#[test]
fn addresses_in_initialisers_are_kept() {
    let variable = &variables(".global .u64 a[3] = {b, generic(b)+8, c+16};")[0];
    let kept: Vec<_> = variable
        .relocations
        .iter()
        .map(|r| (r.at, r.size, r.shift, r.symbol.as_str(), r.addend, r.generic))
        .collect();
    assert_eq!(kept, [(0, 8, 0, "b", 0, false), (8, 8, 0, "b", 8, true), (16, 8, 0, "c", 16, false)]);
    let variable = &variables(".global .u8 a[3] = {5, 0xFF(generic(b)+4), 0xFF00(b)};")[0];
    let kept: Vec<_> =
        variable.relocations.iter().map(|r| (r.at, r.size, r.shift, r.addend, r.generic)).collect();
    assert_eq!(kept, [(1, 1, 0, 4, true), (2, 1, 8, 0, false)]);
}

#[test]
fn heads_of_functions() {
    let text = ".visible .entry k(.param .u64 .ptr .global .align 16 p, .param .align 8 .b8 s[24])\n.maxntid 8, 4\n.reqntid 32\n\
                .minnctapersm 2 .maxnreg 64 { }\n.weak .func (.reg .b32 %o) f(.reg .b32 %i) .noreturn;";
    let functions: Vec<Function> = module(text).expect("PTX").functions;
    let [kernel, function] = functions.as_slice() else { panic!("{functions:?}") };
    assert!(kernel.entry && kernel.linkage == Linkage::Visible);
    assert_eq!(kernel.limits.max_threads, Some([8, 4, 1]));
    assert_eq!(kernel.limits.required_threads, Some([32, 1, 1]));
    assert_eq!((kernel.limits.min_blocks, kernel.limits.max_registers), (Some(2), Some(64)));
    let pointer = kernel.params[0].pointer.expect("a pointer");
    assert_eq!((pointer.space, pointer.align), (Some(Space::Global), 16));
    assert_eq!((kernel.params[1].align, kernel.params[1].len, kernel.params[1].array), (8, 24, true));
    assert!(function.noreturn && function.body.is_none() && function.returns[0].register);
    assert_eq!(function.params[0].ty, Type::B32);
}

#[test]
fn lines_of_the_source_are_the_innermost() {
    let text = ".file 3 \"k.cu\"\n.entry k() {\nret;\n.loc 3 20 5\nret;\n.loc 3 7 1, function_name $L, inlined_at 3 20 5\nret;\n.loc 3 0 0\nret; }";
    let module = module(text).expect("PTX");
    let mut found = Vec::new();
    instructions(module.functions[0].body.as_deref().unwrap_or(&[]), &mut found);
    let lines: Vec<_> = found.iter().map(|i| i.source.map(|s| (s.file, s.line))).collect();
    assert_eq!(lines, [None, Some((3, 20)), Some((3, 7)), None]);
    assert_eq!(found[0].line, 6);
    assert_eq!(module.files[&3], "k.cu");
}

#[test]
fn mistakes_have_a_place() {
    let cases = [
        (".entry k() { add.s32 %r1 %r2; }", "expected `,` or `;` after an operand, found `%r2`"),
        (".entry k() { ret;", "expected `}` at the end of a body, found the end of the text"),
        (".entry k() { mov.u32 %r, 08; }", "is no number"),
        (".entry k() { mov.u32 %r, 1/0; }", "division by zero"),
        (".entry k() { mov.u32 %r, \u{e9}; }", "a character that PTX does not have"),
        (".global .u32 a[2] = {1, 2, 3};", "more values than the variable has elements"),
        (".global .u8 a[2][99999999999] = {{1}, {2}};", "left out of their rows"),
        (".global .u64 a[9223372036854775807][3];", "has 2^64 bytes or more"),
        (".global .texref t;", "textures"),
        (".entry k() { .reg .b32 %r<99999999>; }", "registers in one declaration"),
        (".file 1 \"a", "a string without its end"),
        ("/* never", "a comment without its end"),
    ];
    for (text, message) in cases {
        let error = module(text).expect_err(text).to_string();
        assert!(error.contains(message) && error.contains("PTX line 4"), "{text}: {error}");
    }
    assert!(parse("").expect_err("nothing").to_string().contains(".version"));
}

#[test]
fn depth_is_bounded() {
    for (open, close) in [("{", "}"), ("mov.u32 %r, (", ")"), ("mov.u32 %r, -", ""), ("mov.u32 %r, 1?", "")] {
        let rest = open.chars().last().expect("a sign").to_string();
        let text = format!(".entry k() {{ {open}{}{} }}", rest.repeat(100_000), close.repeat(100_000));
        assert!(module(&text).is_err(), "{open}");
    }
    let deep = format!(".global .u8 a{} = {}1;", "[1]".repeat(50_000), "{".repeat(50_000));
    assert!(module(&deep).is_err());
}
