//! Every warp-wide and asynchronous instruction in `INSTRUCTIONS.md` is lowered, and a modifier too many is not.

const TABLE: &str = include_str!("../../../INSTRUCTIONS.md");

fn instructions() -> Vec<String> {
    let blocks = TABLE.split("```warp\n").skip(1).filter_map(|block| block.split("```").next());
    blocks.flat_map(str::lines).flat_map(crate::alu::tests::table::expand).collect()
}

fn fragment(class: &str, count: usize) -> String {
    let names: Vec<String> = (0..count).map(|n| format!("%{class}{n}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// Registers of a fragment of `mma` or `wmma`, from the number of its elements.
fn count(elements: usize, ty: &str) -> (&'static str, usize) {
    match crate::exec::matrix::tests::width(ty) {
        64 => ("d", elements / 32),
        width => ("r", elements * width / 1024),
    }
}

fn shape(words: &[&str]) -> [usize; 3] {
    let word = words.iter().find(|w| w.starts_with('m') && w.contains('n') && w.contains('k')).unwrap();
    let numbers: Vec<usize> = word.split(['m', 'n', 'k']).filter_map(|n| n.parse().ok()).collect();
    [numbers[0], numbers[1], numbers[2]]
}

fn wmma_fragment(part: &str, ty: &str, [m, n, k]: [usize; 3]) -> String {
    let (class, registers) = match (part, ty) {
        ("a" | "b", "f16") => ("r", 8),
        ("a", _) => count(m * k, ty),
        ("b", _) => count(k * n, ty),
        _ => count(m * n, ty),
    };
    fragment(class, registers)
}

fn operands(text: &str) -> String {
    let words: Vec<&str> = text.split('.').collect();
    let has = |word: &str| words.contains(&word);
    let hint = if has("L2::cache_hint") { ", %l5" } else { "" };
    let member = if has("sync") { ", -1" } else { "" };
    match (words[0], words[1]) {
        ("shfl", _) => format!("%r0|%q0, %r1, %r2, %r3{member}"),
        ("vote", _) if has("ballot") => format!("%r0, !%q1{member}"),
        ("vote", _) => format!("%q0, %q1{member}"),
        ("match", _) => {
            let source = if has("b64") { "%l0" } else { "%r1" };
            format!("%r0{}, {source}, %r2", if has("all") { "|%q0" } else { "" })
        }
        ("redux", _) => "%r0, %r1, %r2".into(),
        ("activemask", _) => "%r0".into(),
        ("elect", _) => "%r0|%q0, -1".into(),
        ("mma", _) => {
            let [m, n, k] = shape(&words);
            let types: Vec<&str> = words[6..]
                .iter()
                .copied()
                .filter(|w| !["satfinite", "xor", "and", "popc"].contains(w))
                .collect();
            // The four products of m8n8k4 have their elements in eight lanes each.
            let times = if k == 4 && types[1] == "f16" { 4 } else { 1 };
            let sizes = [m * n, m * k, k * n, m * n];
            let parts: Vec<String> = sizes
                .iter()
                .zip(types)
                .map(|(size, ty)| count(size * times, ty))
                .map(|(class, count)| fragment(class, count))
                .collect();
            parts.join(", ")
        }
        ("wmma", "load") => {
            format!("{}, [%l0], %r9", wmma_fragment(words[2], words[words.len() - 1], shape(&words)))
        }
        ("wmma", "store") => {
            format!("[%l0], {}, 64", wmma_fragment("d", words[words.len() - 1], shape(&words)))
        }
        ("wmma", _) => {
            let types: Vec<&str> = words[7..].iter().copied().filter(|w| *w != "satfinite").collect();
            let (d, a, c) =
                if types.len() == 2 { (types[0], "f16", types[1]) } else { (types[0], types[1], types[3]) };
            let part = |part: &str, ty: &str| wmma_fragment(part, ty, shape(&words));
            [part("d", d), part("a", a), part("b", a), part("c", c)].join(", ")
        }
        ("ldmatrix" | "stmatrix", _) => {
            let count = words.iter().find_map(|w| w.strip_prefix('x')).unwrap().parse().unwrap();
            let address = if has("shared") || has("shared::cta") { "[%r9]" } else { "[%l0]" };
            let registers = fragment("r", count);
            if words[0] == "ldmatrix" {
                format!("{registers}, {address}")
            } else {
                format!("{address}, {registers}")
            }
        }
        ("movmatrix", _) => "%r0, %r1".into(),
        ("cp", _) => match (has("bulk"), words[2]) {
            (_, "commit_group" | "wait_all") => String::new(),
            (_, "wait_group") => "2".into(),
            (_, "mbarrier") if has("shared") || has("shared::cta") => "[%r0]".into(),
            (_, "mbarrier") => "[%l0]".into(),
            (true, _) if has("commit_group") => String::new(),
            (true, _) if has("wait_group") => "1".into(),
            (true, _) if has("prefetch") => "[%l0], %r1".into(),
            (true, _) if has("bulk_group") => format!("[%l0], [%r0], %r1{hint}"),
            (true, _) if has("global") => format!("[%r0], [%l0], %r1, [%r2]{hint}"),
            (true, _) => "[%r0], [%r3], %r1, [%r2]".into(),
            (false, _) => format!("[%r0], [%l0], 16, %r1{hint}"),
        },
        ("mbarrier", operation) => {
            let shared = has("shared") || has("shared::cta") || has("shared::cluster");
            let address = if shared { "[%r0+8]" } else { "[%l0+8]" };
            match operation {
                "inval" => address.into(),
                "init" | "expect_tx" | "complete_tx" => format!("{address}, 32"),
                "arrive" | "arrive_drop" if has("expect_tx") || has("noComplete") => {
                    format!("%l1, {address}, %r1")
                }
                "arrive" | "arrive_drop" => format!("_, {address}"),
                "pending_count" => "%r0, %l0".into(),
                _ => format!("%q0, {address}, {}", if has("parity") { "%r1" } else { "%l1" }),
            }
        }
        ("mapa", _) => if has("u64") { "%l0, %l1, %r1" } else { "%r0, %r1, %r2" }.into(),
        ("getctarank", _) => if has("u64") { "%r0, %l1" } else { "%r0, %r1" }.into(),
        _ => panic!("no operands for {text}"),
    }
}

fn lowered(instruction: &str, operands: &str) -> Result<(), String> {
    let text = format!(
        ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k() {{\n.reg .b32 %r<20>;\n.reg .b64 %l<20>;\n.reg .f64 \
         %d<20>;\n.reg .pred %q<9>;\n{instruction} {operands};\nret;\n}}\n"
    );
    let module = crate::ptx::parse(&text).map_err(|error| error.to_string())?;
    crate::lower::lower(&module, "k", &|_| None).map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn every_line_is_lowered() {
    let all = instructions();
    assert!(all.len() > 400, "{}", all.len());
    for text in all {
        let operands = operands(&text);
        lowered(&text, &operands).unwrap_or_else(|error| panic!("{text} {operands}: {error}"));
    }
}

#[test]
fn one_modifier_too_many_is_refused() {
    for text in instructions() {
        let operands = operands(&text);
        for extra in ["nonsense", "ftz", "sys"] {
            assert!(lowered(&format!("{text}.{extra}"), &operands).is_err(), "{text}.{extra}");
        }
    }
}
