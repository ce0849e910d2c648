//! Opens bytes as a tokenizer.json and uses what opens: the check of the tests and of the fuzz target.

use ogive_tokenizer::{EncodeOptions, Tokenizer};

/// Text of every class of characters, special tokens' names, incomplete and impossible UTF-8.
const BYTES: &[u8] = b"Once upon a time,  <s>it's 1984\r\n\n na\xc3\xafve </s>\t\xe4\xb8\x96\xe7\x95\x8c\xf0\x9f\xa6\x99 \xff\xe4\xb8 aaaaaaab ab";

/// Whether it opens. What opens must encode to ids of its own, and stream what it decodes.
pub(crate) fn touch(bytes: &[u8]) -> bool {
    let Ok(tokenizer) = Tokenizer::from_json(bytes) else { return false };
    let size = tokenizer.vocab_size();
    for id in tokenizer.eog().iter().chain(&tokenizer.bos()) {
        assert!((*id as usize) < size);
    }
    assert!(tokenizer.token_bytes(u32::try_from(size).expect("ids are u32")).is_err());
    let pair = tokenizer.pair(&[], &[]).into_iter().flat_map(|(ids, _)| ids);
    assert!(pair.into_iter().all(|id| (id as usize) < size));
    for options in [EncodeOptions::TEXT, EncodeOptions::PROMPT, EncodeOptions::default()] {
        for input in [BYTES, b"", b"\0"] {
            let Ok(ids) = tokenizer.encode_bytes(input, options) else { continue };
            let mut stream = tokenizer.stream();
            let mut text = String::new();
            for id in &ids {
                text += &stream.push(*id).expect("encoding gives ids of the vocabulary");
            }
            text += &stream.finish();
            assert_eq!(text, tokenizer.decode(&ids).expect("the same ids"));
        }
    }
    true
}
