//! The model as JSON: what `--json` writes, and what is read back from such a file.

use super::data::{Measured, SCHEMA};

/// As it is written.
///
/// # Errors
/// A number that JSON has no form for.
pub fn write(measured: &Measured) -> Result<String, String> {
    serde_json::to_string_pretty(measured).map_err(|error| error.to_string())
}

/// Reads it back.
///
/// # Errors
/// It is no such file, or one of a newer tool.
pub fn read(text: &str) -> Result<Measured, String> {
    #[derive(serde::Deserialize)]
    struct Head {
        schema: u32,
    }
    let head: Head = serde_json::from_str(text)
        .map_err(|error| format!("this is not what \"cudasnap ab --json\" writes: {error}"))?;
    if head.schema != SCHEMA {
        return Err(format!(
            "it has version {} of the model, and this tool reads version {SCHEMA}: use the tool that wrote it, or a newer one",
            head.schema
        ));
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ab::made_up;

    #[test]
    fn what_is_written_is_read_back() {
        let measured = made_up::run(10, 3.0);
        assert!(read(&write(&measured).unwrap()).unwrap() == measured);
    }

    #[test]
    fn other_versions_and_other_files_are_told_apart() {
        let mut measured = made_up::run(1, 3.0);
        measured.schema = SCHEMA + 1;
        let error = read(&write(&measured).unwrap()).unwrap_err();
        assert!(error.contains("version 2 of the model"), "{error}");
        assert!(read("[]").unwrap_err().contains("this is not what"));
    }

    /// Fields that came later are not asked of an older file.
    #[test]
    fn files_of_the_first_tool_are_read() {
        let measured = made_up::run(2, 3.0);
        let mut value = serde_json::to_value(&measured).unwrap();
        value.as_object_mut().unwrap().remove("confidence");
        let workload = value["workloads"][0].as_object_mut().unwrap();
        workload.remove("no_limit");
        for cycle in workload["cycles"].as_array_mut().unwrap() {
            cycle.as_object_mut().unwrap().remove("dropped");
        }
        assert!(read(&value.to_string()).unwrap() == measured);
    }
}
