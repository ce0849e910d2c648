//! Sessions in files and the context that their model is opened for.
#![allow(clippy::unwrap_used)]

use ogive::{Generate, Options};
use std::fs;
use std::path::Path;

/// Keys that were turned for another context are no use; a context that turns them alike is none other.
#[test]
fn a_session_goes_on_at_every_context_that_turns_positions_alike() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    // Of the settings of packed weights, as makers of such checkpoints write them.
    let other = folder.path().join("llama");
    fs::create_dir(&other).unwrap();
    fs::copy(format!("{golden}/llama/model.safetensors"), other.join("model.safetensors")).unwrap();
    let settings = fs::read_to_string(format!("{golden}/llama/config.json")).unwrap();
    let settings = settings.replacen('{', "{\"not_of_positions\": {\"dynamic\": null},", 1);
    fs::write(other.join("config.json"), settings).unwrap();
    // Trained for 16.
    for (model, context, alike, others) in [
        (Path::new(golden).join("llama-dynamic"), 8, vec![12, 16], vec![17, 40]),
        (Path::new(golden).join("llama-dynamic"), 40, vec![40], vec![41]),
        (other, 8, vec![12, 40], vec![]),
    ] {
        let at = |context: usize| Options::new().context(context).open(&model).unwrap();
        let mut session = at(context).session().unwrap();
        let ids = session.generate(vec![5, 6, 7], &Generate::greedy().max_tokens(2)).unwrap();
        ids.for_each(|piece| drop(piece.unwrap()));
        session.save(&path).unwrap();
        for context in alike {
            at(context).load_session(&path).unwrap();
        }
        for context in others {
            let error = at(context).load_session(&path).unwrap_err().to_string();
            assert!(error.contains("at another context"), "{context}: {error}");
        }
    }
}
