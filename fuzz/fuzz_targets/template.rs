//! Arbitrary text as a chat template: compiling and rendering must not panic, overflow a stack, take gigabytes or run
//! for more than seconds, and rendering twice must give the same. How it writes calls is learned from it, too.
#![no_main]

use ogive_tokenizer::template::{ChatTemplate, DateTime};

libfuzzer_sys::fuzz_target!(|source: &str| {
    let Ok(template) = ChatTemplate::new(source) else { return };
    let variables = serde_json::json!({
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Grüße, 世界 🦙", "tool_calls": [{"name": "f", "arguments": {"x": 1.5, "y": null}}]},
            {"role": "assistant", "content": null},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"items": [true, -7, 1e20]}}}],
        "add_generation_prompt": true,
        "bos_token": "<s>",
        "eos_token": "</s>",
    });
    let now = DateTime::new(2025, 1, 15, 12, 34, 56);
    let first = template.render(&variables, now);
    assert_eq!(first, template.render(&variables, now));
    // Whatever it shows of calls, what it writes is read or comes back.
    if let (Ok(text), Ok(syntax)) = (first, template.call_syntax()) {
        let spoken = syntax.read(&text, &[], 0);
        assert!(!spoken.calls.is_empty() || spoken.text == text);
    }
});
