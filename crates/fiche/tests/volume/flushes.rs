//! How many barriers there are, and what they are for.

use super::*;

#[test]
fn a_flush_is_one_barrier_and_one_of_nothing_is_none() {
    let device = TracedDevice::default();
    let volume = Volume::create(device.clone(), Options::new(8 << 20)).unwrap();
    for _ in 0..50 {
        volume.write_at(4096, &[1; 4096]).unwrap();
        let before = device.calls()[2];
        volume.flush().unwrap();
        assert_eq!(device.calls()[2], before + 1);
        volume.flush().unwrap();
        assert_eq!(device.calls()[2], before + 1);
    }
}

type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// A device that does something while it is flushed, once.
struct Interrupted(TracedDevice, Hook);

impl Device for Interrupted {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }
    fn read_at(&self, pos: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(pos, buf)
    }
    fn write_at(&self, pos: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_at(pos, bytes)
    }
    fn allocate(&self, range: std::ops::Range<u64>) -> std::io::Result<()> {
        self.0.allocate(range)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.0.sync()?;
        let hook = self.1.lock().unwrap().take();
        hook.into_iter().for_each(|hook| hook());
        Ok(())
    }
}

#[test]
fn what_was_written_while_others_were_flushed_is_not_taken_for_durable() {
    let (device, hook) = (TracedDevice::default(), Hook::default());
    let interrupted = Interrupted(device.clone(), hook.clone());
    let volume = Arc::new(Volume::create(interrupted, Options::new(8 << 20)).unwrap());
    volume.write_at(0, &[1; BLOCK]).unwrap();
    let other = volume.clone();
    // When the barrier is through, and before anybody knows.
    *hook.lock().unwrap() = Some(Box::new(move || other.write_at(0, &[2; BLOCK]).unwrap()));
    volume.flush().unwrap();
    let before = device.calls()[2];
    volume.flush().unwrap();
    assert_eq!(device.calls()[2], before + 1);
}
