//! Cost of making the exposition of a large node, which the daemon does once a window.
#![allow(missing_docs, reason = "the macros of criterion make undocumented items")]
#![allow(clippy::expect_used, reason = "a bench that cannot start has nothing to say")]

mod load;

use std::hint::black_box;
use std::sync::{Arc, Mutex};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use warpmeter_exporter::catalogue::Level;
use warpmeter_exporter::compat::Dcgm;
use warpmeter_exporter::encode::Encoder;
use warpmeter_exporter::page::Page;
use warpmeter_exporter::status;

fn encode(c: &mut Criterion) {
    let (first, second) = (load::view(1), load::view(2));
    let mut group = c.benchmark_group("8 GPUs x 7 MIG x 64 pods");
    group.bench_function("first window", |b| {
        b.iter(|| Encoder::new(Level::Standard).encode(black_box(&first)));
    });
    group.bench_function("next window", |b| {
        let mut encoder = Encoder::new(Level::Standard);
        encoder.encode(&first);
        b.iter(|| encoder.encode(black_box(&second)));
    });
    group.bench_function("next window, minimal", |b| {
        let mut encoder = Encoder::new(Level::Minimal);
        encoder.encode(&first);
        b.iter(|| encoder.encode(black_box(&second)));
    });
    group.bench_function("next window, DCGM's names", |b| {
        let views = [Arc::new(load::view(1)), Arc::new(load::view(2))];
        let mut dcgm = Dcgm::default();
        let mut turn = views.iter().cycle();
        b.iter(|| turn.next().map(|view| dcgm.encode(black_box(view))));
    });
    group.bench_function("gzip", |b| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let view = Arc::new(load::view(1));
        let encoder = Arc::new(Mutex::new(Encoder::new(Level::Standard)));
        b.iter_batched(
            || {
                let page = Page::new(Arc::clone(&encoder), Arc::clone(&view), Vec::new());
                page.metrics();
                page
            },
            |page| runtime.block_on(page.metrics().gzip()),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("status", |b| {
        b.iter(|| status::json(black_box(&first), &[], std::time::Duration::ZERO));
    });
    group.finish();
}

criterion_group!(benches, encode);
criterion_main!(benches);
