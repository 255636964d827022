//! Streams made by another thread, a little ahead of whoever writes them.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, Scope};

use onnxforge_proto::blob::Stream;

/// Bytes in a block, and blocks that may wait to be written.
const BLOCK: usize = 1 << 20;
const WAITING: usize = 4;

/// The results of streams, in the order in which they were given.
pub(super) struct Ahead {
    made: Receiver<io::Result<Vec<u8>>>,
    /// Blocks that were written go back to be filled again.
    written: Sender<Vec<u8>>,
}

impl Ahead {
    /// Starts to make the streams, one after the other.
    ///
    /// The thread is one of its own and no task of a pool: the pool might have no thread left for it while its threads wait.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        streams: Vec<Arc<dyn Stream>>,
    ) -> io::Result<Self> {
        let (sender, made) = sync_channel(WAITING);
        let (written, empty) = channel();
        if !streams.is_empty() {
            let mut blocks = Blocks { buffer: Vec::new(), made: sender, empty };
            Builder::new().spawn_scoped(scope, move || {
                for stream in streams {
                    // A block never holds the ends of two streams.
                    let done = stream.write_to(&mut blocks).and_then(|()| blocks.flush());
                    if let Err(error) = done {
                        drop(blocks.made.send(Err(error)));
                        return;
                    }
                }
            })?;
        }
        Ok(Self { made, written })
    }

    /// Writes the next stream, which has `length` bytes.
    pub fn write_next(&mut self, length: u64, out: &mut dyn Write) -> io::Result<()> {
        let mut left = length;
        while left > 0 {
            let block = self.made.recv().map_err(|_| io::Error::other("a stream ended early"))??;
            left = left
                .checked_sub(block.len() as u64)
                .ok_or_else(|| io::Error::other("a stream is longer than it said"))?;
            out.write_all(&block)?;
            // After the last stream nobody takes blocks back.
            drop(self.written.send(block));
        }
        Ok(())
    }
}

/// Collects what a stream writes, and hands it on in blocks.
struct Blocks {
    buffer: Vec<u8>,
    made: SyncSender<io::Result<Vec<u8>>>,
    empty: Receiver<Vec<u8>>,
}

impl Write for Blocks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() >= BLOCK {
            self.flush()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Hands on what there is, even if that is no whole block.
    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let mut next = self.empty.try_recv().unwrap_or_default();
        next.clear();
        let full = std::mem::replace(&mut self.buffer, next);
        self.made.send(Ok(full)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
