//! What one window is served as: text made once, and compressed at most once.

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::Bytes;
use tokio::sync::{OnceCell, watch};
use warpmeter_core::view::View;

use crate::catalogue::Level;
use crate::encode::Encoder;

/// The newest page. A reader copies an `Arc` and holds the lock no longer than that takes.
pub type Pages = watch::Receiver<Arc<Page>>;

/// Makes a page of each window and shows it to whoever serves.
#[derive(Debug)]
pub struct Publisher {
    encoder: Encoder,
    pages: watch::Sender<Arc<Page>>,
}

impl Publisher {
    /// Starts with the page of an empty view, for the `reasons` why there is nothing yet.
    pub fn new(level: Level, reasons: Vec<String>) -> (Self, Pages) {
        let mut encoder = Encoder::new(level);
        let (pages, receiver) = watch::channel(Arc::new(Page::new(&mut encoder, Arc::default(), reasons)));
        (Self { encoder, pages }, receiver)
    }

    /// Replaces the page by that of `view`, which is ready if there are no `reasons` why it is not
    /// (see [`reasons`](crate::readiness::reasons)).
    pub fn publish(&mut self, view: Arc<View>, reasons: Vec<String>) {
        let mut page = Page::new(&mut self.encoder, view, reasons);
        // Where scrapes come every window, none of them should wait for the compression; where they are rare,
        // most windows should not pay for it.
        if self.pages.borrow().gzip.initialized() {
            match compress(&page.text) {
                Ok(bytes) => page.gzip = OnceCell::new_with(Some(bytes)),
                Err(error) => tracing::error!(%error, "compress the exposition"),
            }
        }
        self.pages.send_replace(Arc::new(page));
    }
}

/// One view, ready to be served.
#[derive(Debug)]
pub struct Page {
    view: Arc<View>,
    text: Bytes,
    gzip: OnceCell<Bytes>,
    reasons: Vec<String>,
}

impl Page {
    /// Encodes `view`.
    pub fn new(encoder: &mut Encoder, view: Arc<View>, reasons: Vec<String>) -> Self {
        let text = Bytes::from(encoder.encode(&view));
        Self { view, text, gzip: OnceCell::new(), reasons }
    }

    /// What it shows.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The exposition.
    pub fn text(&self) -> Bytes {
        self.text.clone()
    }

    /// The exposition, compressed: at most once a page, and off the threads that serve. None if it could
    /// not be.
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

    /// Why it is not ready; empty if it is.
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }
}

/// The fastest level: exposition text is so repetitive that the slower ones gain little.
fn compress(text: &[u8]) -> std::io::Result<Bytes> {
    let mut gzip = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    gzip.write_all(text)?;
    gzip.finish().map(Bytes::from)
}
