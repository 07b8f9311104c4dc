//! A device map: which GPU takes the place of which in a restore.

use crate::values;

/// A GPU that a process was checkpointed on, and the one to restore it to (`CUcheckpointGpuPair` of CUDA 13).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuPair {
    old: [u8; 16],
    new: [u8; 16],
}

impl GpuPair {
    /// Parses `OLD=NEW`, both UUIDs with or without the `GPU-` that nvidia-smi prints.
    ///
    /// # Errors
    /// Says which part is no UUID.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (old, new) = text
            .split_once('=')
            .ok_or_else(|| values::takes("OLD=NEW, UUIDs of GPUs as nvidia-smi -L prints them"))?;
        Ok(GpuPair {
            old: parse_uuid(old)?,
            new: parse_uuid(new)?,
        })
    }
}

fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let wrong = || format!("\"{text}\" is no UUID of a GPU (nvidia-smi -L prints them)");
    let plain = text.strip_prefix("GPU-").unwrap_or(text);
    let groups: Vec<usize> = plain.split('-').map(str::len).collect();
    let digits = plain.replace('-', "");
    if groups != [8, 4, 4, 4, 12] || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let number = u128::from_str_radix(&digits, 16).map_err(|_| wrong())?;
    Ok(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_map_is_two_uuids() {
        let pair = GpuPair::parse(
            "GPU-00112233-4455-6677-8899-aabbccddeeff=ffeeddcc-bbaa-9988-7766-554433221100",
        )
        .unwrap();
        assert_eq!(
            (pair.old[0], pair.old[15], pair.new[0], pair.new[15]),
            (0x00, 0xff, 0xff, 0x00)
        );
        for bad in [
            "",
            "=",
            "0=1",
            "GPU-0=GPU-1",
            "00112233-4455-6677-8899-aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddeefg=0",
        ] {
            assert!(GpuPair::parse(bad).is_err(), "{bad}");
        }
    }
}
