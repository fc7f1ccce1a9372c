//! Sizes and ranges as people write them: `16K` is 16,384.

use std::ops::Range;

/// Parses a number of bytes: digits, with K, M, G, T for powers of 1,024.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        unit => return Err(format!("no such unit: {unit}; there are K, M, G and T")),
    };
    let number: u64 = digits.parse().map_err(|_| "a size is a number, as in 16K".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "this size is too large".to_owned())
}

/// A part of something: where it starts, and where it ends if it ends before the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    start: u64,
    end: Option<u64>,
}

impl Part {
    /// The part of something of this length. It may pass the end: that is for the
    /// reader to refuse.
    pub fn of(&self, len: u64) -> Range<u64> {
        self.start..self.end.unwrap_or(len.max(self.start))
    }
}

/// Parses `1M+16K` (start and length), `100..200` (start and end) or `100..`.
pub fn parse_part(text: &str) -> Result<Part, String> {
    if let Some((start, len)) = text.split_once('+') {
        let start = parse(start)?;
        let end = start.checked_add(parse(len)?).ok_or("this range is too large")?;
        return Ok(Part { start, end: Some(end) });
    }
    let (start, end) = text.split_once("..").ok_or("a range is START+LENGTH or START..END")?;
    let start = if start.is_empty() { 0 } else { parse(start)? };
    let end = if end.is_empty() { None } else { Some(parse(end)?) };
    if end.is_some_and(|end| end < start) {
        return Err("this range ends before it starts".to_owned());
    }
    Ok(Part { start, end })
}

/// A number of bytes for people, in powers of 1,024.
pub fn show(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_and_nonsense_is_refused() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("16K"), Ok(16384));
        assert_eq!(parse("4m"), Ok(4 << 20));
        assert_eq!(parse("2GiB"), Ok(2 << 30));
        for bad in ["", "K", "-1", "1.5K", "1X", "99999999999G", "16 K"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parts_are_start_and_length_or_start_and_end() {
        assert_eq!(parse_part("1M+16K").unwrap().of(9), 1 << 20..(1 << 20) + 16384);
        assert_eq!(parse_part("100..200").unwrap().of(9), 100..200);
        assert_eq!(parse_part("100..").unwrap().of(300), 100..300);
        assert_eq!(parse_part("..5").unwrap().of(300), 0..5);
        for bad in ["5", "9..3", "a+b", "1+", "+", "18446744073709551615+1"] {
            assert!(parse_part(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_shown_with_three_digits() {
        let shown: Vec<_> = [0, 1023, 1024, 16 << 10, 1 << 20, u64::MAX].map(show).into();
        assert_eq!(shown, ["0 B", "1023 B", "1.00 KiB", "16.0 KiB", "1.00 MiB", "16384 PiB"]);
    }
}
