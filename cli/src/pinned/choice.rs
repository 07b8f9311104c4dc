//! Which GPU is measured. NVML and CUDA count differently: NVML by PCI bus, CUDA the fastest first unless told otherwise, and only those
//! that `CUDA_VISIBLE_DEVICES` names. The UUID says the same to both.

use std::process::Command;

use crate::gpus::{Gpu, Gpus};

/// A GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// Its number by PCI bus.
    pub number: u32,
    /// Its UUID, where NVML knows it.
    pub uuid: Option<String>,
    /// Whether `CUDA_VISIBLE_DEVICES` stays as it is: with instances of a GPU (MIG) it says which of them may be used.
    pub keep_visible: bool,
}

impl Choice {
    /// The first that a process uses.
    pub fn of_process(pid: i32) -> Self {
        let Ok(gpus) = Gpus::look() else {
            return Choice::numbered(0);
        };
        let used = gpus.contexts_of(pid).next().map(|(gpu, _)| Choice::of(gpu));
        // A checkpointed process is on none.
        used.unwrap_or_else(|| gpus.gpus.first().map_or_else(Choice::default, Choice::of))
    }

    fn numbered(number: u32) -> Self {
        Choice {
            number,
            ..Choice::default()
        }
    }

    fn of(gpu: &Gpu) -> Self {
        Choice {
            number: gpu.index,
            uuid: Some(gpu.uuid.clone()).filter(|uuid| !uuid.is_empty()),
            keep_visible: gpu.mig == Some(true),
        }
    }

    /// Lets CUDA count as NVML does, and see what NVML sees.
    pub fn prepare(&self, command: &mut Command) {
        let number = if self.keep_visible { 0 } else { self.number };
        command.args(["--gpu", &number.to_string()]);
        if self.keep_visible {
            return;
        }
        command
            .env("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
            .env_remove("CUDA_VISIBLE_DEVICES");
        if let Some(uuid) = &self.uuid {
            command.args(["--uuid", uuid]);
        }
    }

    /// CUDA's number for it, among those with these UUIDs.
    ///
    /// # Errors
    /// There is no such GPU.
    pub fn among(&self, uuids: &[Option<String>]) -> Result<u32, String> {
        let same = |uuid: &Option<String>| uuid.is_some() && *uuid == self.uuid;
        if let Some(place) = uuids.iter().position(same) {
            return Ok(place as u32);
        }
        let place = self.number as usize;
        match uuids.get(place) {
            // The driver does not tell, or nobody has asked for one by its UUID.
            Some(None) => Ok(self.number),
            Some(_) if self.uuid.is_none() => Ok(self.number),
            Some(_) => Err(format!(
                "CUDA does not see the GPU {}",
                self.uuid.as_deref().unwrap_or_default()
            )),
            None => Err(format!(
                "CUDA does not see GPU {place}: it sees {}",
                uuids.len()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(number: u32, uuid: Option<&str>) -> Choice {
        Choice {
            number,
            uuid: uuid.map(String::from),
            keep_visible: false,
        }
    }

    #[test]
    fn the_uuid_goes_before_the_number() {
        let told = [Some("GPU-a".into()), Some("GPU-b".into())];
        assert_eq!(choice(0, Some("GPU-b")).among(&told), Ok(1));
        assert_eq!(choice(1, None).among(&told), Ok(1));
        assert!(choice(0, Some("GPU-c")).among(&told).is_err());
        assert!(choice(2, None)
            .among(&told)
            .unwrap_err()
            .contains("it sees 2"));
        let silent = [None, None];
        assert_eq!(choice(1, Some("GPU-b")).among(&silent), Ok(1));
        assert!(choice(2, Some("GPU-b")).among(&silent).is_err());
    }

    #[test]
    fn cuda_is_made_to_count_as_nvml_does() {
        let mut command = Command::new("x");
        choice(3, Some("GPU-b")).prepare(&mut command);
        let line = format!("{command:?}");
        assert!(
            line.contains("\"--gpu\" \"3\" \"--uuid\" \"GPU-b\""),
            "{line}"
        );
        let variables: Vec<_> = command.get_envs().collect();
        assert!(variables.contains(&("CUDA_VISIBLE_DEVICES".as_ref(), None)));
        let mut command = Command::new("x");
        let mig = Choice {
            keep_visible: true,
            ..choice(3, Some("GPU-b"))
        };
        mig.prepare(&mut command);
        assert_eq!(command.get_envs().count(), 0);
        assert_eq!(format!("{command:?}"), "\"x\" \"--gpu\" \"0\"");
    }
}
