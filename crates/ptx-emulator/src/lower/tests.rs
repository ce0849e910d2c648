//! Every instruction on memory and of control in `INSTRUCTIONS.md` is lowered, and a modifier too many is not.

use crate::ptx::ast::Type;

const TABLE: &str = include_str!("../../INSTRUCTIONS.md");

fn lines(kind: &str) -> Vec<String> {
    let open = format!("```{kind}\n");
    let blocks = TABLE.split(&open).skip(1).filter_map(|block| block.split("```").next());
    blocks.flat_map(str::lines).flat_map(crate::alu::tests::table::expand).collect()
}

/// One register of each type, called after it, and what else operands need.
fn header() -> String {
    let types = [
        "pred", "b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64",
        "f16", "f16x2", "bf16", "bf16x2", "f32", "f64",
    ];
    let mut text =
        String::from(".version 8.8\n.target sm_100\n.address_size 64\n.visible .entry k(.param .u64 p) {\n");
    for ty in types {
        let ty = ty.strip_prefix("b8").map_or(ty, |_| "b16").replace("u8", "u16").replace("s8", "s16");
        if !text.contains(&format!("%{ty};")) {
            text += &format!(".reg .{ty} %{ty};\n");
        }
    }
    text += ".shared .align 16 .b8 tile[64];\nlist: .branchtargets END, END;\n";
    text
}

/// The operands for an instruction of the table.
fn operands(instruction: &str) -> String {
    let words: Vec<&str> = instruction.split('.').collect();
    let ty = words.iter().copied().find(|word| Type::from_word(word).is_some()).unwrap_or("u32");
    let register = |ty: &str| match ty {
        "b8" | "u8" | "s8" => "%b16".to_owned(),
        ty => format!("%{ty}"),
    };
    let count = words.iter().find_map(|word| word.strip_prefix('v').and_then(|n| n.parse::<usize>().ok()));
    let value = match count {
        Some(count) => format!("{{{}}}", vec![register(ty); count].join(", ")),
        None => register(ty),
    };
    match words[0] {
        "ld" | "ldu" => format!("{value}, [%u64]"),
        "st" => format!("[%u64], {value}"),
        "atom" if words.contains(&"cas") => format!("{value}, [%u64], {value}, {value}"),
        "atom" => format!("{value}, [%u64], {value}"),
        "red" => format!("[%u64], {value}"),
        "cvta" => format!("{value}, {value}"),
        "isspacep" => "%pred, %u64".into(),
        "prefetch" | "prefetchu" | "applypriority" => "[%u64]".into(),
        "discard" => "[%u64], 128".into(),
        "createpolicy" => "%b64, 1.0".into(),
        "bra" => "END".into(),
        "brx" => "%u32, list".into(),
        "nanosleep" | "setmaxnreg" => "40".into(),
        "bar" | "barrier" if words.contains(&"warp") => "-1".into(),
        "bar" | "barrier" if words.contains(&"cluster") => String::new(),
        "bar" | "barrier" if words.contains(&"arrive") => "1, 64".into(),
        "bar" | "barrier" if words.contains(&"popc") => "%u32, 1, %pred".into(),
        "bar" | "barrier" if words.contains(&"red") => "%pred, 1, 64, !%pred".into(),
        "bar" | "barrier" => "0".into(),
        _ => String::new(),
    }
}

fn lowered(header: &str, instructions: &[String]) -> Result<(), String> {
    let body: String = instructions.iter().map(|i| format!("{i} {};\n", operands(i))).collect();
    let module =
        crate::ptx::parse(&format!("{header}{body}END: ret;\n}}\n")).map_err(|error| error.to_string())?;
    super::lower(&module, "k", &|_| None).map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn every_instruction_of_the_table_is_lowered() {
    let all = lines("memory");
    assert!(all.len() > 2000, "{} instructions", all.len());
    let header = header();
    lowered(&header, &all).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn another_modifier_is_refused() {
    let header = header();
    for instruction in lines("memory").into_iter().step_by(17) {
        let wrong = format!("{instruction}.wild");
        assert!(lowered(&header, std::slice::from_ref(&wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn every_special_register_is_known() {
    for name in lines("special") {
        assert!(crate::exec::specials::lookup(&name).is_some(), "{name}");
    }
}
