//! Tools, and how families of models write that they call them.
#![allow(dead_code)]

use ogive_tokenizer::template::ChatTemplate;
use ogive_tokenizer::tools::Tool;
use serde_json::{Map, Value, json};

pub(crate) fn object(value: Value) -> Map<String, Value> {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn tools() -> Vec<Tool> {
    let parameters = json!({
        "type": "object",
        "properties": {
            "city": { "type": "string", "description": "Where" },
            "days": { "type": "integer", "description": "For how long" },
            "exact": { "type": "boolean", "description": "How" },
            "also": { "type": "array", "items": { "type": "string" }, "description": "What else" },
            "near": { "type": "object", "description": "A place", "properties": { "lat": { "type": "number", "description": "" } } },
        },
        "required": ["city"],
    });
    let none = json!({ "type": "object", "properties": {}, "required": [] });
    vec![
        Tool::new("get_weather", "The weather in a city", parameters),
        Tool::new("now", "What time it is", none),
    ]
}

/// Numbers below another that look random and are the same everywhere.
pub(crate) fn dice(mut state: u64) -> impl FnMut(usize) -> usize {
    move |n| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % n
    }
}

/// `text` with a few slips: cut off, a letter of `chars` in place of another, or what is in those from somewhere on.
pub(crate) fn slipped(
    mut text: Vec<char>,
    chars: &[char],
    random: &mut impl FnMut(usize) -> usize,
) -> String {
    for _ in 0..1 + random(4) {
        let (at, from) = (random(text.len()), random(chars.len()));
        match random(3) {
            0 => text.truncate(at.max(1)),
            1 => text[at] = chars[from],
            _ => text.extend_from_slice(&chars[from..]),
        }
    }
    text.into_iter().collect()
}

/// What families that are not among the published templates write, by the part of their templates that writes it, and what a model says,
/// which differs from it in spaces.
pub(crate) const FAMILIES: [(&str, &str, &str); 20] = [
    (
        "Kimi K2, with ids that have the name in them",
        "<|tool_calls_section_begin|>{% for c in m.tool_calls %}<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>{{ c.function.arguments|tojson }}<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Bern\"}<|tool_call_end|>\
         <|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
    ),
    (
        "DeepSeek-V3.1, with arguments as a text",
        "<｜tool▁calls▁begin｜>{% for c in m.tool_calls %}{{ '<｜tool▁call▁begin｜>' + c.function.name + '<｜tool▁sep｜>' + c.function.arguments + '<｜tool▁call▁end｜>' }}{% endfor %}<｜tool▁calls▁end｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\":\"Bern\"}<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    (
        "gpt-oss, one a turn",
        "{{ ' to=functions.' + m.tool_calls[0].function.name + '<|channel|>commentary json<|message|>' + m.tool_calls[0].function.arguments|tojson + '<|call|>' }}",
        " to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{\"city\": \"Bern\"}<|call|>",
    ),
    (
        "Python without a mark",
        "[{% for c in m.tool_calls %}{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}={{ v|tojson }}{{ ', ' if not loop.last }}{% endfor %}){{ ', ' if not loop.last }}{% endfor %}]",
        "[get_weather(city=\"Bern\"), now()]",
    ),
    (
        "a list of OpenAI's objects",
        "{{ '<|tool_call|>' }}[{% for c in m.tool_calls %}{{ {'type': 'function', 'function': {'name': c.function.name, 'arguments': c.function.arguments}}|tojson }}{{ ', ' if not loop.last }}{% endfor %}]{{ '<|/tool_call|>' }}",
        "<|tool_call|>[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Bern\"}}}, {\"name\":\"now\"}]<|/tool_call|>",
    ),
    (
        "GLM-4.5",
        "{% for c in m.tool_calls %}\n<tool_call>{{ c.function.name }}\n{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v if v is string else v|tojson }}</arg_value>\n{% endfor %}</tool_call>{% endfor %}",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
    ),
    (
        "Qwen3, in lines",
        QWEN,
        "\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
    ),
    (
        "Qwen3, in one",
        QWEN,
        "<tool_call>{\"arguments\":{\"city\":\"Bern\"},\"name\":\"get_weather\"}</tool_call><tool_call>{\"name\":\"now\"}</tool_call>",
    ),
    (
        "Qwen3, without the last tag",
        QWEN,
        "<tool_call> {\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\": \\\"Bern\\\"}\"} <tool_call> {\"name\": \"now\"}",
    ),
    ("Qwen3, as Python", QWEN, "<tool_call>[get_weather(city='Bern'), now()]</tool_call>"),
    (
        "Qwen3-Coder",
        CODER,
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
    ),
    (
        "Qwen3-Coder, without the first tag",
        CODER,
        "<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call><tool_call><function=now></function></tool_call>",
    ),
    (
        "early DeepSeek-R1, where there is no text before a call",
        "{% if m.content is none %}{% for c in m.tool_calls %}{{ '<｜tool▁call▁begin｜>' + c.type + '<｜tool▁sep｜>' + c.function.name + '\\n```json\\n' + c.function.arguments + '\\n```<｜tool▁call▁end｜>' }}{% endfor %}{% endif %}",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Bern\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>",
    ),
    (
        "ids of nine letters alone, as Mistral's",
        "{% for c in m.tool_calls %}{{ raise_exception('id') if c.id|length != 9 }}{% endfor %}[TOOL_CALLS] {{ m.tool_calls|map(attribute='function')|list|tojson }}",
        "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}, \"id\": \"0\"}, {\"name\": \"now\", \"id\": \"1\"}]",
    ),
    (
        "functionary 3.1",
        "{% for c in m.tool_calls %}{{ '<function=' ~ c.function.name ~ '>' + c.function.arguments + '</function>' }}{% endfor %}",
        "<function=get_weather>{\"city\": \"Bern\"}</function><function=now>{}</function>",
    ),
    (
        "FireFunction",
        " functools[{% for c in m.tool_calls %}{{ '{\"name\": \"' ~ c.function.name ~ '\", \"arguments\": ' + c.function.arguments + '}' }}{{ ', ' if not loop.last }}{% endfor %}]",
        " functools[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}, {\"name\": \"now\", \"arguments\": {}}]",
    ),
    (
        "Command R+",
        "\nAction:\n```json\n[\n{% for c in m.tool_calls %}    {\n        \"tool_name\": \"{{ c.function.name }}\",\n        \"parameters\": {{ c.function.arguments|tojson(indent=4)|indent(8) }}\n    }{{ ',\n' if not loop.last }}{% endfor %}\n]```\n",
        "Action:\n```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        \"parameters\": {\n            \"city\": \"Bern\"\n        }\n    },\n    {\n        \"tool_name\": \"now\",\n        \"parameters\": {}\n    }\n]```",
    ),
    (
        "Seed-OSS",
        "{% for c in m.tool_calls %}\n<seed:tool_call>\n<function={{ c.function.name }}>\n{% for k, v in c.function.arguments|items %}<parameter={{ k }}>{{ v if v is string else v|string }}</parameter>\n{% endfor %}</function>\n</seed:tool_call>{% endfor %}",
        "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Bern</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>",
    ),
    (
        "Apriel",
        "\n<tool_calls>[{% for c in m.tool_calls %}{{ '{\"name\": \"' ~ c.function.name ~ '\", \"arguments\": ' + c.function.arguments|string }}{{ ', \"id\": \"' ~ c.id ~ '\"' if not loop.last }}{{ '}' }}{{ ', ' if not loop.last }}{% endfor %}]</tool_calls>",
        "\n<tool_calls>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}, {\"name\": \"now\", \"arguments\": {}}]</tool_calls>",
    ),
    (
        "Nemotron Super",
        "<TOOLCALL>[{% for c in m.tool_calls %}{{ '{\"name\": \"' ~ c.function.name ~ '\", \"arguments\": ' }}{{ c.function.arguments|tojson }}{{ '}' ~ (', ' if not loop.last else '') }}{% endfor %}]</TOOLCALL>",
        "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}, {\"name\": \"now\", \"arguments\": {}}]</TOOLCALL>",
    ),
];
pub(crate) const CODER: &str = "{% for c in m.tool_calls %}\n<tool_call>\n<function={{ c.function.name }}>\n{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n{{ v }}\n</parameter>\n{% endfor %}</function>\n</tool_call>{% endfor %}";
pub(crate) const QWEN: &str = "{% for c in m.tool_calls %}{{ '\n' if m.content or not loop.first }}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments|tojson }}}\n</tool_call>{% endfor %}";

pub(crate) fn template(calls: &str) -> ChatTemplate {
    let source = format!(
        "{{{{ tools|tojson if tools }}}}{{% for m in messages %}}<|{{{{ m.role }}}}|>{{{{ m.content }}}}{{% if m.tool_calls %}}{calls}{{% endif %}}<|end|>{{% endfor %}}"
    );
    ChatTemplate::new(&source).unwrap()
}
