//! Templates, as families of models have them, and how they write calls.

/// Between tags that texts show, as Qwen's.
pub(crate) const TAGS: &str = "{% if tools %}{{ tools|length }}{% endif %}{% for m in messages %}{{ '<|' ~ m.role ~ '|>' ~ m.content }}\
    {% for c in m.tool_calls or [] %}{{ '\n<tool_call>\n' if m.content or not loop.first else '<tool_call>\n' }}\
    {{ {'name': c.function.name, 'arguments': c.function.arguments}|tojson ~ '\n</tool_call>' }}{% endfor %}\
    <|im_end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
/// Behind marks that texts do not show, as Mistral's.
pub(crate) const MARKS: &str = "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' ~ m.content }}\
    {% for c in m.tool_calls or [] %}{{ '[TOOL_CALLS]' ~ c.function.name ~ '[ARGS]' ~ c.function.arguments|tojson }}{% endfor %}\
    <|im_end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
/// Without any, as Llama 3's.
pub(crate) const BARE: &str = "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' }}{% if m.tool_calls %}\
    {{ {'name': m.tool_calls[0].function.name, 'arguments': m.tool_calls[0].function.arguments}|tojson }}\
    {% else %}{{ m.content }}{% endif %}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
/// To whom a message is, as gpt-oss's, which has either a text or a thought before a call.
pub(crate) const CHANNELS: &str = "{% for m in messages %}{% if m.tool_calls %}\
    {% if m.content and m.thinking %}{{ raise_exception('both') }}{% endif %}\
    {% if m.content or m.thinking %}{{ '<|start|>assistant<|channel|>analysis<|message|>' ~ (m.content or m.thinking) ~ '<|end|>' }}{% endif %}\
    {% set c = m.tool_calls[0].function %}\
    {{ '<|start|>assistant to=functions.' ~ c.name ~ '<|channel|>commentary json<|message|>' ~ c.arguments|tojson ~ '<|call|>' }}\
    {% elif m.role == 'tool' %}{{ '<|start|>functions.' ~ m.name ~ ' to=assistant<|channel|>commentary<|message|>' ~ m.content ~ '<|end|>' }}\
    {% else %}{{ '<|start|>' ~ m.role ~ ('<|channel|>final' if m.role == 'assistant' else '') ~ '<|message|>' ~ m.content ~ '<|end|>' }}\
    {% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}";
