//! Templates that loop, recurse, grow or are no templates: each ends in a clear error, soon, on a small stack.
//!
//! Time is bounded loosely here (other work runs beside the tests); the point is that nothing runs for ever, takes
//! gigabytes or overflows a stack of 2 MiB, the size that Rust gives to threads.

use std::time::{Duration, Instant};

use ogive_tokenizer::template::{ChatTemplate, TemplateError};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(60);

/// Renders on a thread with the default stack; a stack overflow ends the test program.
fn run(source: &str) -> Result<String, TemplateError> {
    let source = source.to_string();
    let start = Instant::now();
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        let messages = json!([{"role": "user", "content": "hello"}]);
        ChatTemplate::new(&source)?.render(&json!({ "messages": messages }), None)
    });
    let outcome = thread.unwrap().join().unwrap();
    assert!(start.elapsed() < PATIENCE, "took {:?}", start.elapsed());
    outcome
}

fn is_stopped(source: &str) {
    match run(source) {
        Err(TemplateError::Limit { .. }) => {}
        other => panic!("expected a limit, got {:.300} for {source:.200}", format!("{other:?}")),
    }
}

#[test]
fn loops_without_an_end() {
    is_stopped("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}");
    is_stopped("{% for a in range(100000) %}{% for b in range(100000) %}x{{ a }}{% endfor %}{% endfor %}");
    is_stopped("{{ range(10 ** 9) }}");
    is_stopped("{{ range(0, -9223372036854775807, -1) }}");
    is_stopped(
        "{% set l = range(100000)|list %}{% for x in l %}{% if x in l|reverse|list %}{% endif %}{% endfor %}",
    );
    is_stopped("{% for x in range(3) recursive %}{{ loop(range(3)) }}{% endfor %}");
    is_stopped("{% set l = range(100000)|list %}{% for x in l %}{{ l|unique|list|length }}{% endfor %}");
}

#[test]
fn text_that_grows() {
    is_stopped("{{ 'a' * 10 ** 9 }}");
    is_stopped("{{ ('a' * 10 ** 8 ~ 'b') * 10 ** 8 }}");
    is_stopped("{{ [0] * 10 ** 10 }}");
    is_stopped(
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    );
    is_stopped(
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    );
    is_stopped(
        "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
    );
    let unrolled = "{% set s %}{{ s }}{{ s }}{% endset %}".repeat(60);
    is_stopped(&format!("{{% set s = 'ab' %}}{unrolled}"));
    let unrolled = "{% set l = [l, l] %}".repeat(50);
    is_stopped(&format!("{{% set l = 'ab' %}}{unrolled}{{{{ l }}}}"));
    is_stopped(&format!("{{% set l = 'ab' %}}{unrolled}{{{{ l|tojson }}}}"));
    is_stopped(&format!("{{% set l = 'a' %}}{unrolled}{{% set m = l %}}{{{{ l == [m[0], m[1]] }}}}"));
    is_stopped("{{ ('a' * 100000)|replace('a', 'b' * 100000) }}");
    is_stopped("{{ ('a' * 100000).replace('', 'b' * 100000) }}");
    is_stopped("{{ ('a' * 100000).join(range(100000)|map('string')) }}");
    is_stopped("{{ range(100000)|join('a' * 100000) }}");
    is_stopped("{{ ('\\n' * 1000000)|indent(1000, true, true) }}");
    is_stopped("{{ 'x'.center(10 ** 12) }}");
    is_stopped("{{ 'x'.zfill(10 ** 12) }}");
    is_stopped("{{ '{:999999999}'.format(1) }}");
    is_stopped("{{ '%999999999d' % 1 }}");
    is_stopped("{{ '%.999999999f' % 1 }}");
    is_stopped("{{ [1]|batch(10 ** 12, 0)|list }}");
    is_stopped("{{ [1]|slice(10 ** 12)|list }}");
    is_stopped(
        "{{ range(100000)|tojson(indent=64)|tojson|tojson|tojson|tojson }}{{ range(100000)|map('center', 2000)|join }}",
    );
    is_stopped("{{ 10 ** 40 }}");
    is_stopped("{% macro m(s) %}{{ s }}{{ s }}{{ m(s ~ s) }}{% endmacro %}{{ m('ab' * 1000) }}");
}

#[test]
fn plain_text_in_loops_is_paid_for() {
    let long = "long text ".repeat(10_000);
    is_stopped(&format!("{{% for i in range(100000) %}}{long}{{% endfor %}}"));
    is_stopped(&format!("{{% for i in range(100000) %}}{{{{ i }}}}{long}{{% endfor %}}"));
    is_stopped(&format!(
        "{{% for i in range(100000) %}}{{# c #}}{{% raw %}}{long}{{% endraw %}}{{% endfor %}}"
    ));
    is_stopped(&format!(
        "{{% macro m() %}}{long}{{% endmacro %}}{{% for i in range(100000) %}}{{% set x = m() %}}{{% endfor %}}"
    ));
    is_stopped(&format!("{{% for i in range(100000) %}}{{% set x %}}{long}{{% endset %}}{{% endfor %}}"));
    is_stopped(
        "{% for i in range(100000) %}{% for j in range(100) %}0123456789012345678901234567890{% endfor %}{% endfor %}",
    );
}

#[test]
fn recursion() {
    is_stopped("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
    is_stopped("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}");
    is_stopped(
        "{% macro m() %}{{ caller }}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{% call m() %}{% endcall %}",
    );
    is_stopped(
        "{% macro m() %}{% for x in [1] %}{% with y = 1 %}{{ [m()]|map('upper')|list }}{% endwith %}{% endfor %}{% endmacro %}{{ m() }}",
    );
    is_stopped("{% macro m(x) %}{{ x|map('upper') }}{{ m(x) }}{% endmacro %}{% set l = [1] %}{{ m(l) }}");
}

#[test]
fn values_that_hold_themselves() {
    is_stopped(
        "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
    );
    is_stopped(
        "{% set ns = namespace(l={}) %}{% for i in range(100000) %}{% set ns.l = {'a': ns.l} %}{% endfor %}",
    );
    is_stopped(
        "{% set ns = namespace(l=1) %}{% for i in range(100000) %}{% set ns.l = dict(a=ns.l) %}{% endfor %}",
    );
    is_stopped(
        "{% set ns = namespace(l=1) %}{% for i in range(100000) %}{% set ns.l = (ns.l,) %}{% endfor %}",
    );
    is_stopped(
        "{% set ns = namespace(l=[1]) %}{% for i in range(100000) %}{% set ns.l = [ns.l]|batch(2)|list %}{% endfor %}",
    );
    is_stopped(
        "{% set ns = namespace(l=[1]) %}{% for i in range(100000) %}{% set ns.l = [ns.l]|groupby(0) %}{% endfor %}",
    );
    is_stopped(
        "{% set ns = namespace(l=[1]) %}{% for i in range(100000) %}{% set ns.l = {'a': ns.l}|dictsort %}{% endfor %}",
    );
    is_stopped(
        "{% set ns = namespace(l=[1]) %}{% for i in range(100000) %}{% set ns.l = {'a': ns.l}.items() %}{% endfor %}",
    );
    is_stopped(
        "{% set ns = namespace(l=[1]) %}{% for i in range(100000) %}{% set ns.l = [ns.l, [1]]|slice(2)|list %}{% endfor %}",
    );
    for attack in [
        "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
        "{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns.me }}",
        "{% set ns = namespace(a=namespace()) %}",
        "{% macro m() %}{% endmacro %}{{ [m] }}",
        "{% for x in [1] %}{{ [loop] }}{% endfor %}",
        "{% set ns = namespace(f={}.items) %}",
    ] {
        assert!(matches!(run(attack), Err(TemplateError::Render { .. })), "{attack}");
    }
}

/// Nothing here is a template: errors, not panics or overflows, for a quarter of a megabyte of each.
#[test]
fn long_nonsense() {
    let long = |text: &str| text.repeat((1 << 18) / text.len());
    for piece in [
        "(",
        "[",
        "{",
        "{{",
        "{%",
        "{#",
        "{{(",
        "not ",
        "-",
        "a.",
        "a|",
        "a[",
        "f(",
        "'",
        "\"\\",
        "a if b else ",
        "a~",
        "a+",
        "1 if ",
        "a is b ",
        "**",
        "{'a':",
        "x,",
        "a or ",
        "a == ",
        "{{ -}}",
        "{%-",
        "{% if x %}",
        "{% elif x %}",
        "{% for x in y %}",
        "{% macro m() %}",
        "{% else %}",
        "{% set x %}",
        "{% generation %}",
        "{% raw %}",
        "{% filter upper %}",
        "{% with a = 1 %}",
        "{% call m() %}",
        "{% block b %}",
        "%}",
        "}}",
        "\n",
        "\0",
        "é",
        "{% endif %}",
    ] {
        let text = long(piece);
        for source in
            [text.clone(), format!("{{{{ {text}"), format!("{{{{ {text} }}}}"), format!("{{% if x %}}{text}")]
        {
            let _ = run(&source);
        }
    }
    let branches = format!("{{% if x %}}{}{{% endif %}}", long("{% elif x %}"));
    assert!(matches!(run(&branches), Err(TemplateError::Syntax { .. })));
    let chain = format!("{{{{ {}a }}}}", long("a or "));
    assert!(matches!(run(&chain), Err(TemplateError::Syntax { .. })));
    let nested = format!("{}{}", "{% if true %}".repeat(2000), "{% endif %}".repeat(2000));
    assert!(matches!(run(&nested), Err(TemplateError::Syntax { .. })));
}

/// What reads a long text and gives little is paid for by what it reads, and a date by what it prints.
#[test]
fn long_texts_that_are_only_looked_at() {
    is_stopped(
        "{% set s = '%A' * 4000000 %}{% for i in range(20) %}{% if strftime_now(s) %}{% endif %}{% endfor %}",
    );
    is_stopped("{% set s = '%F' * 8000000 %}{{ strftime_now(s)|length }}");
    let looks = [
        "s|length",
        "s|count",
        "s[29999999]",
        "s[-30000000]",
        "s|float",
        "s|int",
        "d[s]",
        "d.get(s)",
        "s in d",
        "s.startswith(s)",
        "s.endswith((s, s))",
        "'a'.strip(s)",
        "'a'|trim(s)",
        "'a'.find(s)",
    ];
    // Most of the budget is spent before, to be done sooner.
    let spent = "{% set s = 'a' * 30000000 %}".repeat(7);
    for look in looks {
        is_stopped(&format!(
            "{spent}{{% set d = {{'b': 1}} %}}{{% for i in range(40) %}}{{% if {look} %}}{{% endif %}}{{% endfor %}}"
        ));
    }
}

/// What minijinja does by itself with a value counts as if it were done here: a tuple of itself doubles at every level.
#[test]
fn keys_and_comparisons_read_to_the_leaves() {
    // Most of the budget is spent before, to be done sooner.
    let spent = "{% set s = 'a' * 30000000 %}".repeat(7);
    let doubled = format!(
        "{spent}{{% set ns = namespace(t=(1,)) %}}{{% for i in range(40) %}}{{% set ns.t = (ns.t, ns.t) %}}{{% endfor %}}"
    );
    for read in [
        "{{ {ns.t: 1}|length }}",
        "{{ {'a': 1, ns.t: 1}|length }}",
        "{{ {}[ns.t] }}",
        "{{ {}.get(ns.t) }}",
        "{{ ns.t in {} }}",
        "{{ dict([(ns.t, 1)])|length }}",
        "{{ {}[ns] }}",
        "{% for i in [1, 2] %}{{ loop.changed(ns.t) }}{% endfor %}",
        "{% for i in [1, 2] %}{{ loop.changed([ns.t]) }}{% endfor %}",
        "{% for i in [1, 2] %}{{ loop.changed(ns) }}{% endfor %}",
    ] {
        is_stopped(&format!("{doubled}{read}"));
    }
    // Small enough to be read once, and not to be hashed in every turn.
    let smaller = doubled.replace("(40)", "(16)");
    for read in ["d.copy()", "dict(d)", "d[ns.t]", "{ns.t: 1}"] {
        is_stopped(&format!(
            "{smaller}{{% set d = {{ns.t: 1}} %}}{{% for i in range(100000) %}}{{% if {read} %}}{{% endif %}}{{% endfor %}}"
        ));
    }
}

#[test]
fn every_character_of_a_text_is_asked() {
    for name in ["istitle", "isupper", "islower", "isalpha", "isalnum", "isdigit", "isspace"] {
        is_stopped(&format!(
            "{{% set s = 'é' * 1000000 %}}{{% for i in range(150) %}}{{% if s.{name}() %}}{{% endif %}}{{% endfor %}}"
        ));
    }
    // A name is looked up in a dict, and not searched.
    let entries: String = (0..2000).map(|i| format!("'k{i}': {i}, ")).collect();
    let names = "%(k1999)d".repeat(2000);
    let source = format!("{{{{ ('{names}' % {{{entries}}})|length }}}}");
    assert_eq!(run(&source).unwrap(), "8000");
}

/// Numbers beyond what any value has mean what they say.
#[test]
fn more_places_than_a_number_has() {
    for places in ["70000", "10 ** 9", "9223372036854775807"] {
        assert_eq!(run(&format!("{{{{ 1.5|round({places}) }}}}")).unwrap(), "1.5");
        assert_eq!(run(&format!("{{{{ 5e-324|round({places}) }}}}")).unwrap(), "5e-324");
        assert_eq!(run(&format!("{{{{ 1.5|round({places}, 'floor') }}}}")).unwrap(), "1.5");
        assert_eq!(run(&format!("{{{{ 1.5|round(-({places})) }}}}")).unwrap(), "0.0");
    }
}

/// What is long but sane works.
#[test]
fn a_megabyte_of_template() {
    let text = "line of text\n".repeat(80_000);
    assert_eq!(run(&text).unwrap().len(), text.len() - 1);
    let tags = "{{ 1 }}\n".repeat(100_000);
    assert_eq!(run(&tags).unwrap().len(), 200_000 - 1);
    let sum = format!("{{{{ {}'a' }}}}", "'a' + ".repeat(1900));
    assert_eq!(run(&sum).unwrap().len(), 1901);
    assert!(matches!(run(&" ".repeat(5 << 20)), Err(TemplateError::Limit { .. })));
}

/// At the limits of nesting that are let through, stacks suffice.
#[test]
fn the_deepest_that_is_allowed() {
    let deep = |n: usize| format!("{{{{ {}1{} }}}}", "[".repeat(n), "]".repeat(n));
    let deepest = (1..200).rev().find(|&n| ChatTemplate::new(&deep(n)).is_ok()).unwrap();
    assert!(deepest >= 30, "{deepest}");
    run(&deep(deepest)).unwrap();
    let blocks =
        |n: usize| format!("{}{{{{ 1 }}}}{}", "{% for x in [1] %}".repeat(n), "{% endfor %}".repeat(n));
    let deepest = (1..200).rev().find(|&n| ChatTemplate::new(&blocks(n)).is_ok()).unwrap();
    assert!(deepest >= 40, "{deepest}");
    run(&blocks(deepest)).unwrap();
    let branches = |n: usize| format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(n));
    run(&branches(500)).unwrap();
    let ors = |n: usize| format!("{{{{ {}a }}}}", "a or ".repeat(n));
    run(&ors(398)).unwrap();
    let filters = |n: usize| format!("{{{{ 'a'{} }}}}", "|upper".repeat(n));
    assert_eq!(run(&filters(390)).unwrap(), "A");
    let recursion = "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}.{% endmacro %}{{ m(30) }}";
    assert_eq!(run(recursion).unwrap().len(), 31);
}

/// minijinja's loop divides by the number of what it cycles through.
#[test]
fn nothing_to_cycle_through() {
    for call in ["loop.cycle()", "loop.cycle(*[])", "loop['cycle']()"] {
        let error = run(&format!("{{% for x in [1] %}}{{{{ {call} }}}}{{% endfor %}}")).unwrap_err();
        assert!(matches!(error, TemplateError::Render { .. }), "{call}: {error}");
    }
}

#[test]
fn what_a_template_says_is_passed_on() {
    let error = run("{{ raise_exception('roles must ' ~ 'alternate') }}").unwrap_err();
    assert_eq!(error, TemplateError::Raised { message: "roles must alternate".into() });
    let error = run("{% macro m() %}{{ raise_exception('no') }}{% endmacro %}\n\n{{ m() }}").unwrap_err();
    assert_eq!(error, TemplateError::Raised { message: "no".into() });
    let error = run("a\n{% if true %}\n{{ messages[0].content + 1 }}{% endif %}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "chat template failed (line 3): can only concatenate str (not \"int\") to str"
    );
    let error = run("a\n\n{% frob %}").unwrap_err();
    assert_eq!(error.to_string(), "chat template does not compile (line 3): unknown tag \"frob\"");
    let error = run("{{ 1|frob }}").unwrap_err();
    assert!(error.to_string().contains("frob"), "{error}");
    let error = run("\n{{ frob() }}").unwrap_err();
    assert!(error.to_string().contains("frob") && error.to_string().contains("line 2"), "{error}");
}

#[test]
fn deep_variables_are_refused() {
    let mut value = json!(1);
    for _ in 0..100 {
        value = json!([value]);
    }
    let error = ChatTemplate::new("{{ x }}").unwrap().render(&json!({ "x": value }), None).unwrap_err();
    assert!(matches!(error, TemplateError::Variables { .. }), "{error}");
}

/// minijinja only jumps: it would leave a scope or a buffer open, then panic or lose the text that follows.
#[test]
fn jumps_out_of_blocks_that_a_loop_holds() {
    for word in ["break", "continue"] {
        for (open, close) in [
            ("with y = 1", "endwith"),
            ("generation", "endgeneration"),
            ("set y", "endset"),
            ("set y | upper", "endset"),
            ("filter upper", "endfilter"),
            ("call m()", "endcall"),
            ("macro n()", "endmacro"),
        ] {
            let macros = "{% macro m() %}{{ caller() }}{% endmacro %}";
            let source = format!(
                "{macros}{{% for m in [1, 2] %}}\n{{% {open} %}}{{% if true %}}{{% {word} %}}{{% endif %}}a{{% {close} %}}{{% endfor %}}tail"
            );
            let name = open.split(' ').next().unwrap();
            match run(&source) {
                Err(TemplateError::Syntax { line: 2, message }) => {
                    assert!(message.contains(word) && message.contains(name), "{message}");
                }
                other => panic!("{source}: {other:?}"),
            }
        }
        for source in
            ["{% W %}", "{% for x in [] %}{% else %}{% W %}{% endfor %}", "{% with %}{% W %}{% endwith %}"]
        {
            let source = source.replace('W', word);
            assert!(matches!(run(&source), Err(TemplateError::Syntax { .. })), "{source}");
        }
    }
    // A loop inside the block is left as always.
    for open in ["with", "generation", "set y", "filter upper"] {
        let close = open.split(' ').next().unwrap();
        let source = format!(
            "{{% {open} %}}{{% for m in 'ab' %}}{{{{ m }}}}{{% break %}}{{% endfor %}}{{% end{close} %}}tail"
        );
        assert!(run(&source).unwrap().ends_with("tail"), "{source}");
    }
}
