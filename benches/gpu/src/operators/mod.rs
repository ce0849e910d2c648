//! Every operator by itself, against what the device can do: in the sizes of Llama 3 8B, and of others where that has none.
//!
//! Left out are those of the trait that are measured elsewhere (`upload` and `download` among the ceilings, `upload_weight` with models),
//! `experts`, which is `moe` without `route`, and `bring`, which wants two devices.

mod attention;
mod memory;
mod products;
mod rows;

use crate::clock::Clock;
use crate::figure::Figure;
use crate::{Report, Result, Run};
use ogive::backend::Plan;
use ogive::cuda::CudaBackend;
use ogive::tensor;

/// Sizes: those of Llama 3 8B, or a few.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    dim: usize,
    ffn: usize,
    vocab: usize,
    heads: usize,
    kv_heads: usize,
    head: usize,
}

const REAL: Sizes = Sizes { dim: 4096, ffn: 14_336, vocab: 128_256, heads: 32, kv_heads: 8, head: 128 };
const TINY: Sizes = Sizes { dim: 256, ffn: 256, vocab: 512, heads: 4, kv_heads: 2, head: 64 };

struct Bench<'a> {
    run: &'a Run,
    report: &'a mut Report,
    b: &'a CudaBackend,
    s: Sizes,
    /// Whether the filter let anything through.
    wanted: bool,
}

pub(crate) fn measure(run: &Run, report: &mut Report) -> Result<()> {
    let mut bench = Bench { run, report, b: &run.cuda, s: run.pick(REAL, TINY), wanted: false };
    // These go by what products are computed in.
    let products: &[fn(&mut Bench<'_>) -> Result<()>] = &[
        products::linear,
        products::gated,
        products::many,
        products::experts,
        attention::prompts,
        attention::later_prompts,
        products::each,
    ];
    // What is missed most comes first.
    let others: &[fn(&mut Bench<'_>) -> Result<()>] = &[
        attention::decode,
        rows::norms,
        attention::rope_attend,
        rows::embed,
        rows::best,
        attention::windows,
        attention::latent,
        memory::store,
        products::route,
        rows::elements,
        rows::moves,
        attention::encoder,
        memory::convolution,
        memory::scan,
        memory::linear_attention,
        memory::states,
        memory::gather,
        memory::copies,
    ];
    let others = others.iter().filter(|_| !run.again);
    for part in products.iter().chain(others) {
        // One operator that fails must not take the others with it, unless it takes the device.
        let done = part(&mut bench);
        bench.report.noted("operators", done)?;
        // What was recorded keeps the memory of the largest rows.
        run.cuda.drop_graphs();
    }
    // When they are measured again many are left out.
    if !bench.wanted && !run.filter.is_empty() && !run.again {
        bench.report.note(format!("no operator has {} in its name", run.filter.join(" or ")));
    }
    Ok(())
}

impl Bench<'_> {
    fn wants(&mut self, name: &str) -> bool {
        let wanted =
            self.run.filter.is_empty() || self.run.filter.iter().any(|part| name.contains(part.as_str()));
        self.wanted |= wanted;
        wanted
    }

    /// Times so many calls of `f` in a graph, all of this plan if they use one.
    fn add(
        &mut self,
        name: &str,
        case: &str,
        calls: (usize, Option<&Plan>),
        work: [f64; 2],
        f: &mut dyn FnMut(usize) -> tensor::Result<()>,
    ) -> Result<()> {
        if !self.run.has_time() {
            self.report.note(format!("no time was left for {name}, {case}"));
            return Ok(());
        }
        let measured = Clock::new(self.run).recorded(calls.0, calls.1, f);
        let Some((times, graph)) = self.report.noted(&format!("{name}, {case}"), measured)? else {
            return Ok(());
        };
        let mut figure = Figure::new(format!("{name}, {}", self.run.compute), case, times, work);
        figure.graph = graph;
        self.report.add("operators", figure);
        Ok(())
    }

    /// The same for what is never recorded: a call at a time, with its launch.
    fn eager(
        &mut self,
        name: &str,
        case: String,
        work: [f64; 2],
        f: &mut dyn FnMut() -> tensor::Result<()>,
    ) -> Result<()> {
        if !self.run.has_time() {
            self.report.note(format!("no time was left for {name}, {case}"));
            return Ok(());
        }
        let measured = Clock::new(self.run).device(1, || Ok(f()?));
        if let Some(times) = self.report.noted(&format!("{name}, {case}"), measured)? {
            self.report.add("operators", Figure::new(name, case, times, work));
        }
        Ok(())
    }

    /// Rows of a step, as models have them.
    fn rows(&self) -> &'static [usize] {
        self.run.pick(&[1, 2, 4, 8, 16, 64, 512, 2048], &[1, 20])
    }

    /// The memory is the bound where rows are few, and then each call must find another weight; else a few calls are enough.
    fn calls(rows: usize, copies: usize) -> (usize, Option<&'static Plan>) {
        (if rows <= 16 { copies.max(4) } else { 2 }, None)
    }
}
