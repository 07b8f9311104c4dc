//! How much to hold.

const MIB: u64 = 1 << 20;

/// How much to hold, in bytes; each is a multiple of 1 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// With contents.
    pub filled: u64,
    /// Of zeros.
    pub zeros: u64,
}

impl Size {
    /// From the numbers of the command line.
    ///
    /// # Errors
    /// Nothing to hold, or more than can be counted.
    pub fn new(gib: u64, mib: u64, zeros_mib: u64) -> Result<Self, String> {
        let filled = gib
            .checked_mul(1024)
            .and_then(|from_gib| from_gib.checked_add(mib));
        let filled = filled.and_then(|mib| mib.checked_mul(MIB));
        let zeros = zeros_mib.checked_mul(MIB);
        let sizes = filled.zip(zeros);
        // Addresses are signed in places of the driver.
        let sizes = sizes.filter(|(filled, zeros)| {
            let all = filled.checked_add(*zeros);
            all.is_some_and(|all| all <= i64::MAX as u64)
        });
        match sizes {
            None => Err(format!(
                "{gib} GiB, {mib} MiB and {zeros_mib} MiB of zeros are more bytes than can be counted"
            )),
            Some((0, _)) => Err("nothing to hold: --gib and --mib are 0 together".into()),
            Some((filled, zeros)) => Ok(Size { filled, zeros }),
        }
    }

    /// All of it.
    pub fn all(&self) -> u64 {
        self.filled + self.zeros
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_add_up() {
        let size = Size::new(2, 512, 64).unwrap();
        assert_eq!((size.filled, size.zeros), (2560 << 20, 64 << 20));
        assert_eq!(size.all(), 2624 << 20);
        assert_eq!(Size::new(0, 1, 0).unwrap().filled, 1 << 20);
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        assert!(Size::new(0, 0, 64)
            .unwrap_err()
            .starts_with("nothing to hold"));
        for (gib, mib, zeros) in [
            (u64::MAX, 0, 0),
            (1 << 34, 0, 0),
            (1 << 33, 0, 0),
            (0, u64::MAX, 0),
            (u64::MAX / 1024, u64::MAX, 0),
            (1, 0, u64::MAX),
            (1, 0, (1 << 43) - 1),
        ] {
            let error = Size::new(gib, mib, zeros).unwrap_err();
            assert!(error.contains("more bytes than can be counted"), "{error}");
        }
    }
}
