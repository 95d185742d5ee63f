//! What one window is served as: text made at most once, and compressed at most once. Where scrapes come every window,
//! none of them should wait for it, so it is made with the window; where they are rare, most windows should not pay.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::Bytes;
use tokio::sync::{OnceCell, watch};
use warpmeter_core::view::View;

use crate::catalogue::Level;
use crate::compat::Dcgm;
use crate::encode::Encoder;

/// The newest page. A reader copies an `Arc` and holds the lock no longer than that takes.
pub type Pages = watch::Receiver<Arc<Page>>;

/// Makes a page of each window and shows it to whoever serves.
#[derive(Debug)]
pub struct Publisher {
    encoder: Arc<Mutex<Encoder>>,
    /// Makes the figures under DCGM's names, if they are wanted.
    dcgm: Option<Dcgm>,
    pages: watch::Sender<Arc<Page>>,
}

impl Publisher {
    /// Starts with the page of an empty view, for the `reasons` why there is nothing yet. With `dcgm`, pages have the
    /// figures under DCGM's names too.
    pub fn new(level: Level, mut dcgm: Option<Dcgm>, reasons: Vec<String>) -> (Self, Pages) {
        let (encoder, view) = (Arc::new(Mutex::new(Encoder::new(level))), Arc::default());
        let compat = dcgm.as_mut().map(|dcgm| Exposition::new(dcgm.encode(&view)));
        let page = Page { dcgm: compat, ..Page::new(Arc::clone(&encoder), view, reasons) };
        let (pages, receiver) = watch::channel(Arc::new(page));
        (Self { encoder, dcgm, pages }, receiver)
    }

    /// Replaces the page by that of `view`, which is ready if there are no `reasons` why it is not
    /// (see [`reasons`](crate::readiness::reasons)).
    pub fn publish(&mut self, view: Arc<View>, reasons: Vec<String>) {
        let dcgm = self.dcgm.as_mut().map(|dcgm| Exposition::new(dcgm.encode(&view)));
        let mut page = Page { dcgm, ..Page::new(Arc::clone(&self.encoder), view, reasons) };
        let last = Arc::clone(&self.pages.borrow());
        if last.asked.load(Ordering::Relaxed) {
            page.encode();
            if let (Some(metrics), Some(last)) = (page.metrics.get_mut(), last.metrics.get()) {
                metrics.compress_like(last);
            }
        }
        if let (Some(dcgm), Some(last)) = (&mut page.dcgm, &last.dcgm) {
            dcgm.compress_like(last);
        }
        self.pages.send_replace(Arc::new(page));
    }
}

/// One view, ready to be served.
#[derive(Debug)]
pub struct Page {
    view: Arc<View>,
    encoder: Arc<Mutex<Encoder>>,
    metrics: OnceLock<Exposition>,
    /// Whether anybody has asked for the metrics.
    asked: AtomicBool,
    dcgm: Option<Exposition>,
    reasons: Vec<String>,
}

impl Page {
    /// A page of `view`, which `encoder` makes the text of when it is wanted.
    pub fn new(encoder: Arc<Mutex<Encoder>>, view: Arc<View>, reasons: Vec<String>) -> Self {
        let (metrics, asked) = (OnceLock::new(), AtomicBool::new(false));
        Self { view, encoder, metrics, asked, dcgm: None, reasons }
    }

    fn encode(&self) -> &Exposition {
        self.metrics.get_or_init(|| {
            // What an encoder keeps does not show in what it makes, also if a panic left that half done.
            let mut encoder = self.encoder.lock().unwrap_or_else(PoisonError::into_inner);
            Exposition::new(encoder.encode(&self.view))
        })
    }

    /// What it shows.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The metrics of the catalogue.
    pub fn metrics(&self) -> &Exposition {
        self.asked.store(true, Ordering::Relaxed);
        self.encode()
    }

    /// Those under DCGM's names, if they are wanted.
    pub fn dcgm(&self) -> Option<&Exposition> {
        self.dcgm.as_ref()
    }

    /// Why it is not ready; empty if it is.
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }
}

/// Text of one window, plain and compressed.
#[derive(Debug)]
pub struct Exposition {
    text: Bytes,
    gzip: OnceCell<Bytes>,
}

impl Exposition {
    fn new(text: String) -> Self {
        Self { text: Bytes::from(text), gzip: OnceCell::new() }
    }

    /// The text.
    pub fn text(&self) -> Bytes {
        self.text.clone()
    }

    /// The text, compressed: at most once, and off the threads that serve. None if it could not be.
    pub async fn gzip(&self) -> Option<Bytes> {
        let compressed = self.gzip.get_or_try_init(|| async {
            let text = self.text.clone();
            tokio::task::spawn_blocking(move || compress(&text)).await.map_err(std::io::Error::other)?
        });
        match compressed.await {
            Ok(bytes) => Some(bytes.clone()),
            Err(error) => {
                tracing::error!(%error, "compress the exposition");
                None
            }
        }
    }

    /// Compresses now if the last one was asked for compressed. Where scrapes come every window, none of them should
    /// wait for it; where they are rare, most windows should not pay for it.
    fn compress_like(&mut self, last: &Self) {
        if last.gzip.initialized() {
            match compress(&self.text) {
                Ok(bytes) => self.gzip = OnceCell::new_with(Some(bytes)),
                Err(error) => tracing::error!(%error, "compress the exposition"),
            }
        }
    }
}

/// The fastest level: exposition text is so repetitive that the slower ones gain little.
fn compress(text: &[u8]) -> std::io::Result<Bytes> {
    let mut gzip = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    gzip.write_all(text)?;
    gzip.finish().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_made_with_the_window_only_where_the_last_was_asked_for() {
        let (mut publisher, pages) = Publisher::new(Level::Standard, None, Vec::new());
        let mut publish = || {
            publisher.publish(Arc::default(), Vec::new());
            Arc::clone(&pages.borrow())
        };
        let unasked = publish();
        assert!(unasked.metrics.get().is_none());
        let text = unasked.metrics().text();
        let next = publish();
        assert_eq!(next.metrics.get().map(Exposition::text), Some(text), "the same view, the same text");
        assert!(publish().metrics.get().is_none(), "nobody asked for that one");
    }
}
