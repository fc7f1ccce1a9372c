//! The paper's device model (its section 2 and Table 1): how many pieces a second a method gives
//! from a device, from the time of a first byte, the rate of transfer, the bytes that have to
//! be fetched, and the time that decoding takes here.

use crate::measure::{Mode, PIECE};

/// A device.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    pub name: &'static str,
    /// Seconds to the first byte of a random read, and of one of a sorted batch.
    pub latency: f64,
    pub sorted_latency: f64,
    /// Bytes a second.
    pub transfer: f64,
}

const MIB: f64 = (1 << 20) as f64;

/// The two of the paper's Table 1, and two that came since: a drive of the NVMe class, and a
/// range request to an object store over one connection.
pub const DEVICES: [Device; 4] = [
    Device { name: "hdd", latency: 8.5e-3, sorted_latency: 4.5e-3, transfer: 150.0 * MIB },
    Device { name: "ssd", latency: 0.12e-3, sorted_latency: 0.12e-3, transfer: 1000.0 * MIB },
    Device { name: "nvme", latency: 0.06e-3, sorted_latency: 0.06e-3, transfer: 5000.0 * MIB },
    Device { name: "object", latency: 30e-3, sorted_latency: 30e-3, transfer: 80.0 * MIB },
];

/// What is known of a method: stored bytes a byte of corpus, its block length, and how many
/// pieces a second it gives from memory.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    pub ratio: f64,
    pub block: usize,
    pub rate: f64,
}

/// Pieces of 16 KiB a second.
pub fn predict(device: &Device, mode: Mode, method: &Method) -> f64 {
    let piece = PIECE as f64;
    if mode == Mode::Full {
        // Transfer and decoding overlap: the slower one counts.
        return method.rate.min(device.transfer / (piece * method.ratio));
    }
    // An unaligned piece touches one block more than it has whole ones.
    let block = method.block as f64;
    let fetched = method.ratio * (piece + block);
    let latency = if mode == Mode::Batch { device.sorted_latency } else { device.latency };
    1.0 / (latency + fetched / device.transfer + 1.0 / method.rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arithmetic of the paper's section 2, for blocks of 64 KiB at 25 %.
    #[test]
    fn it_gives_the_numbers_of_the_paper() {
        // "A compressed block derived from 64 kiB can be decoded in around 0.25 ms."
        let method = Method { ratio: 0.25, block: 64 << 10, rate: 1.0 / 0.25e-3 };
        let of = |name: &str, mode| {
            let device = DEVICES.iter().find(|device| device.name == name).unwrap();
            predict(device, mode, &method)
        };
        // "around 110 random-access queries per second", "approximately 200" when batched.
        assert!((105.0..115.0).contains(&of("hdd", Mode::Random)));
        assert!((190.0..215.0).contains(&of("hdd", Mode::Batch)));
        // "something like 2,900" with a latency of 0.1 ms for whole blocks; 0.12 ms here.
        assert!((2_500.0..2_900.0).contains(&of("ssd", Mode::Random)));
    }
}
