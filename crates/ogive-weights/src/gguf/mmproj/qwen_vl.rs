//! `qwen2vl_merger`, `qwen2.5vl_merger` and `qwen3vl_merger`: the first convolution, which sees two frames, is kept as one for each; queries, keys and
//! values are matrices of their own in the first two and one in the last; and what is merged of earlier blocks (DeepStack) has the number of its block.

use super::{mlp, renamed, tower, types};
use crate::gguf::{Change, Header, Rule, Settings, Translation};
use ogive_tensor::{Error, F32, HostWeight, Result, WeightInfo};
use serde_json::json;

/// The convolutions of the first frame and of the second.
const FRAMES: [&str; 2] = ["v.patch_embd.weight", "v.patch_embd.weight.1"];

/// Windows of Qwen2.5-VL, in pixels of a side, which files do not say.
const WINDOW: usize = 112;

pub(super) fn qwen2_vl() -> Translation {
    let t = qwen("qwen2vl_merger", "Qwen2VLForConditionalGeneration", ["mlp.fc1", "mlp.fc2"]);
    merger(t, "ln_q", ["mlp.0", "mlp.2"]).settings(|header, settings| {
        shared(header, settings, "qwen2_vl")?;
        tower(settings, |tower| {
            renamed(tower, &[("hidden_size", "embed_dim"), ("out_hidden_size", "hidden_size")]);
        });
        Ok(())
    })
}

pub(super) fn qwen2_5_vl() -> Translation {
    let t = qwen("qwen2.5vl_merger", "Qwen2_5_VLForConditionalGeneration", ["mlp.up_proj", "mlp.down_proj"]);
    merger(t, "ln_q", ["mlp.0", "mlp.2"])
        .rename("v.blk.{}.ffn_gate", "model.visual.blocks.{}.mlp.gate_proj")
        .settings(|header, settings| {
            shared(header, settings, "qwen2_5_vl")?;
            windows(header, settings)
        })
}

pub(super) fn qwen3_vl() -> Translation {
    let t = qwen("qwen3vl_merger", "Qwen3VLForConditionalGeneration", ["mlp.linear_fc1", "mlp.linear_fc2"]);
    merger(t, "norm", ["linear_fc1", "linear_fc2"])
        .rule(Rule::new("v.position_embd.weight", "model.visual.pos_embed.weight"))
        .for_file(|t, header| {
            deep(header).into_iter().enumerate().fold(t, |t, (i, block)| {
                let parts = [("norm", "norm"), ("fc1", "linear_fc1"), ("fc2", "linear_fc2")];
                parts.into_iter().fold(t, |t, (from, to)| {
                    let at = format!("model.visual.deepstack_merger_list.{i}.{to}");
                    t.rename(&format!("v.deepstack.{block}.{from}"), &at)
                })
            })
        })
        .settings(|header, settings| {
            shared(header, settings, "qwen3_vl")?;
            tower(settings, |tower| {
                tower.insert("deepstack_visual_indexes".into(), json!(deep(header)));
                if let Some(places) = header.rows("v.position_embd.weight") {
                    tower.insert("num_position_embeddings".into(), places.into());
                }
            });
            Ok(())
        })
}

/// What all have: blocks, and a convolution of two frames.
fn qwen(projector: &str, class: &str, [up, down]: [&str; 2]) -> Translation {
    let block = |leaf: &str| format!("model.visual.blocks.{{}}.{leaf}");
    let names = [
        ("ln1", "norm1"),
        ("ln2", "norm2"),
        ("attn_qkv", "attn.qkv"),
        ("attn_q", "attn.q"),
        ("attn_k", "attn.k"),
        ("attn_v", "attn.v"),
        ("attn_out", "attn.proj"),
    ];
    let t = names.into_iter().fold(Translation::mmproj(projector, class), |t, (from, to)| {
        t.rename(&format!("v.blk.{{}}.{from}"), &block(to))
    });
    mlp(t, block(up), block(down))
        .rule(Rule::changed(FRAMES, "model.visual.patch_embed.proj.weight", interleaved()))
        .rule(Rule::new("v.patch_embd.bias", "model.visual.patch_embed.proj.bias"))
}

/// What makes one row of a block of patches.
fn merger(t: Translation, norm: &str, [up, down]: [&str; 2]) -> Translation {
    let at = |leaf: &str| format!("model.visual.merger.{leaf}");
    t.rename("v.post_ln", &at(norm)).rename("mm.0", &at(up)).rename("mm.2", &at(down))
}

/// The settings that all have. The epsilon of norms is passed over: converters write the text's, and the classes have one of their own.
fn shared(header: &Header<'_>, settings: &mut Settings, kind: &str) -> Result<()> {
    types(settings, kind, kind);
    let merge = header.usize("spatial_merge_size")?.unwrap_or(2);
    let out = header.usize("projection_dim")?;
    tower(settings, |tower| {
        renamed(tower, &[("num_hidden_layers", "depth"), ("num_attention_heads", "num_heads")]);
        tower.insert("spatial_merge_size".into(), merge.into());
        tower.insert("temporal_patch_size".into(), FRAMES.len().into());
        tower.extend(out.map(|out| ("out_hidden_size".into(), out.into())));
    });
    Ok(())
}

/// Every so-many-th block looks everywhere, and the others no further than a window.
fn windows(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    const KEY: &str = "n_wa_pattern";
    let why = || Error::missing(&format!("{}.{KEY}", header.architecture()));
    let every = header.usize(KEY)?.ok_or_else(why)?;
    // No further than there are blocks: the list is bounded by the file.
    let blocks = (0..).take_while(|i| header.has_tensor(&format!("v.blk.{i}.attn_out.weight"))).count();
    let full: Vec<usize> = match every {
        0 => (0..blocks).collect(),
        every => (1..=blocks).filter(|i| i.is_multiple_of(every)).map(|i| i - 1).collect(),
    };
    let side = header.usize("window_size")?.unwrap_or(WINDOW);
    tower(settings, |tower| {
        tower.insert("fullatt_block_indexes".into(), json!(full));
        tower.insert("window_size".into(), side.into());
    });
    Ok(())
}

/// The blocks behind which something is merged, as the file's tensors have it.
fn deep(header: &Header<'_>) -> Vec<u64> {
    let block = |name: &str| name.strip_prefix("v.deepstack.")?.split_once('.')?.0.parse().ok();
    let mut blocks: Vec<u64> = header.gguf().tensors().iter().filter_map(|t| block(t.name())).collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

/// Two convolutions `[outputs, 3, p, p]` as one of two frames, `[outputs, 3, 2, p, p]`.
fn interleaved() -> Change {
    let misfit = || Error::invalid(FRAMES[1], "it is not like the convolution of the first frame");
    let shape = move |shapes: [[usize; 3]; 2]| match shapes {
        [one, other] if one == other => one[0].checked_mul(2).map(|n| [n, one[1], one[2]]).ok_or_else(misfit),
        _ => Err(misfit()),
    };
    Change::new(
        move |of, _| {
            let [one, other] = of else { return Err(misfit()) };
            let format =
                if one.format == other.format && one.format.block_len == 1 { one.format } else { &F32 };
            Ok(WeightInfo::new(&*one.name, shape([one.shape, other.shape])?, format))
        },
        move |of, _| {
            let [one, other] = of else { return Err(misfit()) };
            let shape = shape([one.shape, other.shape])?;
            let alike = one.format == other.format && one.format.block_len == 1;
            let [one, other] =
                if alike { [one.clone(), other.clone()] } else { [one.decoded()?, other.decoded()?] };
            let size = shape[1] * shape[2] * one.format.block_bytes;
            if one.bytes.is_empty() || size == 0 {
                // Nothing bounds the shape.
                return Err(Error::invalid(FRAMES[0], "it has no elements"));
            }
            let pairs = one.bytes.chunks_exact(size).zip(other.bytes.chunks_exact(size));
            let bytes: Vec<u8> = pairs.flat_map(|(one, other)| [one, other].concat()).collect();
            HostWeight::new(&*one.name, shape, one.format, bytes.into())
        },
    )
}
