//! Which splitter a file means: the names of GGUF's `tokenizer.ggml.pre`, and the pattern strings of `tokenizer.json`.
//!
//! An unknown name is an error, as in llama.cpp, because a wrong splitter gives plausible text and quietly worse answers. A
//! file *without* a name (made before the key existed) gets llama.cpp's `default` and a warning. Names that llama.cpp maps to
//! an approximation forced by its engine get the model's own pattern instead (`cased`, `deepseek-*`).

use super::Stage;
use super::cased::Cased;
use super::pattern::Pattern;
use super::runs::{Kind, Run};
use super::words::{Tail, Words};
use crate::{Result, TokenizerError};

/// What a name of `tokenizer.ggml.pre` says.
#[derive(Debug, Clone)]
pub(crate) struct Pre {
    pub(crate) stages: Vec<Stage>,
    /// A word that is a token is that token, whatever the merges say.
    pub(crate) ignore_merges: bool,
    /// BOS is added where the file does not say.
    pub(crate) add_bos: bool,
}

/// Names by family. Source: `llama_vocab::impl::load` of llama.cpp, and gguf-py's list of models.
const FAMILIES: &[(Family, &[&str])] = &[
    (Family::Default, &["default"]),
    (
        Family::Llama3,
        &[
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
    ),
    (Family::Dbrx, &["dbrx", "smaug-bpe", "chatglm-bpe"]),
    (Family::Glm4, &["glm4", "glm5"]),
    (
        Family::Gpt2,
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v1-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
        ],
    ),
    (
        Family::Qwen2,
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
    ),
    (Family::Qwen35, &["qwen35"]),
    (
        Family::DigitsThenGpt2,
        &["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
    ),
    (Family::Falcon, &["falcon"]),
    (Family::DeepSeekLlm, &["deepseek-llm"]),
    (Family::DeepSeekCoder, &["deepseek-coder"]),
    (Family::DeepSeek3, &["deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"]),
    (Family::Tekken, &["tekken"]),
    (Family::Gpt4o, &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"]),
    (Family::Bailing, &["bailingmoe", "bailingmoe2", "llada-moe"]),
    (Family::SeedCoder, &["seed-coder"]),
    (Family::Laguna, &["laguna"]),
    (Family::MiniCpm5, &["minicpm5"]),
    (Family::Bloom, &["bloom", "poro-chat", "gpt3-finnish"]),
    (Family::Viking, &["viking"]),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Default,
    Llama3,
    Dbrx,
    Glm4,
    Gpt2,
    Qwen2,
    Qwen35,
    DigitsThenGpt2,
    Falcon,
    DeepSeekLlm,
    DeepSeekCoder,
    DeepSeek3,
    Tekken,
    Gpt4o,
    Bailing,
    SeedCoder,
    Laguna,
    MiniCpm5,
    Bloom,
    Viking,
}

/// All names that [`pre`] knows.
pub(crate) fn known() -> String {
    FAMILIES.iter().flat_map(|(_, names)| names.iter().copied()).collect::<Vec<_>>().join(", ")
}

/// The splitter and the habits that a name of `tokenizer.ggml.pre` stands for.
pub(crate) fn pre(name: &str) -> Result<Pre> {
    let family = FAMILIES
        .iter()
        .find(|(_, names)| names.contains(&name))
        .map(|(family, _)| *family)
        .ok_or_else(|| TokenizerError::unsupported("tokenizer.ggml.pre", name, known()))?;
    Ok(Pre {
        stages: stages(family)?,
        ignore_merges: matches!(family, Family::Llama3 | Family::Glm4 | Family::Tekken | Family::MiniCpm5),
        add_bos: matches!(family, Family::Llama3 | Family::Tekken),
    })
}

/// The name that stands for these stages: of several that cut alike, one with the same habit where there is one.
pub(crate) fn name_of(stages: &[Stage], ignore_merges: bool) -> Option<&'static str> {
    // Stages hold compiled patterns, which are compared by what they print.
    let shown = |stages: &[Stage]| format!("{stages:?}");
    let wanted = shown(stages);
    let names =
        FAMILIES.iter().filter(|(family, _)| *family != Family::Default).filter_map(|(family, names)| {
            let name = if *family == Family::Llama3 { "llama-bpe" } else { names.first()? };
            pre(name).ok().filter(|pre| shown(&pre.stages) == wanted).map(|pre| (name, pre.ignore_merges))
        });
    let found: Vec<_> = names.collect();
    found.iter().find(|(_, habit)| *habit == ignore_merges).or(found.first()).map(|(name, _)| *name)
}

/// llama.cpp spells contractions `'[sS]`, so GGUF never folds U+017F.
const QWEN2: Words = Words { digits: 1, tail: Tail::Lines, marks: false, long_s: false };
const LLAMA3: Words = Words { digits: 3, ..QWEN2 };

const fn run(kind: Kind, min: usize, max: usize) -> Stage {
    Stage::Run(Run { kind, min, max })
}

const MANY: usize = usize::MAX;

/// Cased letters as DeepSeek's first models list them: ranges of an older Unicode.
const CASED_LETTERS: &str = concat!(
    r"\s?[",
    r"\x{41}-\x{5A}\x{61}-\x{7A}\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}",
    r"\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}",
    r"\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}",
    r"\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}",
    r"\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}",
    r"\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}",
    r"\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}",
    r"\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}",
    r"\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}",
    r"\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}",
    r"\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}",
    r"]+",
);
/// ASCII and full-width punctuation, quotation marks, ideographic space and stops.
const DEEPSEEK_PUNCT: &str =
    r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+";
/// Everything from U+0800 to the Han ideographs, and Hangul.
const DEEPSEEK_CJK: &str = r"[\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";

fn stages(family: Family) -> Result<Vec<Stage>> {
    let pattern = |p: &str| Pattern::new(p).map(Stage::Pattern);
    Ok(match family {
        Family::Default => vec![
            run(Kind::PunctAndMath, 1, MANY),
            Stage::Gpt2,
            run(Kind::Number, 1, MANY),
            run(Kind::AsciiDigit, 3, 3),
        ],
        Family::Llama3 | Family::Dbrx | Family::Glm4 => vec![Stage::Words(LLAMA3)],
        Family::Gpt2 => vec![Stage::Gpt2],
        Family::Qwen2 | Family::Bailing => vec![Stage::Words(QWEN2)],
        Family::Qwen35 => vec![Stage::Words(Words { marks: true, ..QWEN2 })],
        Family::DigitsThenGpt2 => vec![run(Kind::Number, 1, 1), Stage::Gpt2],
        Family::Falcon => {
            vec![run(Kind::PunctAndMathAndGrave, 1, MANY), Stage::Gpt2, run(Kind::AsciiDigit, 3, 3)]
        }
        Family::DeepSeekLlm => vec![
            run(Kind::Newline, 1, 1),
            pattern(CASED_LETTERS)?,
            pattern(DEEPSEEK_PUNCT)?,
            pattern(r"\s+$")?,
            pattern(DEEPSEEK_CJK)?,
            run(Kind::Number, 1, MANY),
        ],
        Family::DeepSeekCoder => {
            vec![
                run(Kind::Newline, 1, 1),
                pattern(r"\s?\p{L}+")?,
                pattern(r"\s?\p{P}+")?,
                pattern(DEEPSEEK_CJK)?,
                run(Kind::Number, 1, 1),
            ]
        }
        Family::DeepSeek3 => vec![run(Kind::Number, 1, 3), run(Kind::HanAndKana, 1, MANY), Stage::DeepSeek3],
        Family::Tekken => vec![Stage::Cased(Cased { digits: 1, contractions: false, long_s: false })],
        Family::Gpt4o => vec![Stage::Cased(Cased { digits: 3, contractions: true, long_s: false })],
        Family::SeedCoder => vec![Stage::Words(Words { tail: Tail::Nothing, ..QWEN2 })],
        Family::Laguna => {
            vec![run(Kind::LineFeed, 1, MANY), run(Kind::NotNewline, 1, MANY), Stage::Words(QWEN2)]
        }
        Family::MiniCpm5 => vec![run(Kind::Number, 1, 3), Stage::Words(Words { digits: MANY, ..QWEN2 })],
        Family::Bloom => vec![pattern(BLOOM)?],
        Family::Viking => vec![pattern(BLOOM)?, run(Kind::Number, 1, 1)],
    })
}

/// The published pattern strings and the matchers that run them.
const PATTERNS: &[(&str, Stage)] = &[
    (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", Stage::Gpt2),
    (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)", Stage::Gpt2),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Stage::Words(Words { long_s: true, ..LLAMA3 }),
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Stage::Words(Words { long_s: true, ..QWEN2 }),
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Stage::Words(Words { long_s: true, marks: true, ..QWEN2 }),
    ),
    (
        r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Stage::Words(LLAMA3),
    ),
    (
        r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Stage::Words(QWEN2),
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
        Stage::Words(Words { long_s: true, tail: Tail::Nothing, ..QWEN2 }),
    ),
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Stage::Cased(Cased { digits: 1, contractions: false, long_s: false }),
    ),
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Stage::Cased(Cased { digits: 3, contractions: true, long_s: true }),
    ),
    (
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        Stage::DeepSeek3,
    ),
    (
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
        Stage::DeepSeek3,
    ),
    (r"\p{N}", run(Kind::Number, 1, 1)),
    (r"\p{N}+", run(Kind::Number, 1, MANY)),
    (r"\p{N}{1,3}", run(Kind::Number, 1, 3)),
    ("[0-9][0-9][0-9]", run(Kind::AsciiDigit, 3, 3)),
    ("[一-龥\u{3040}-ゟ゠-ヿ]+", run(Kind::HanAndKana, 1, MANY)),
    (r"[\r\n]", run(Kind::Newline, 1, 1)),
];

/// The stage that runs a pattern of `tokenizer.json`: hand-written where the pattern is known.
pub(crate) fn for_pattern(pattern: &str) -> Result<Stage> {
    match PATTERNS.iter().find(|(known, _)| *known == pattern) {
        Some((_, stage)) => Ok(stage.clone()),
        None => Pattern::new(pattern).map(Stage::Pattern),
    }
}

/// For tests: every known pattern beside its matcher.
#[cfg(test)]
pub(crate) fn patterns() -> &'static [(&'static str, Stage)] {
    PATTERNS
}
