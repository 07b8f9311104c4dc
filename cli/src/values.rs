//! Values on the command line. Whatever is not understood is told in one form: the option, the value, and what it takes.

use std::ffi::OsStr;
use std::fmt::Display;
use std::time::Duration;

use clap::builder::{OsStringValueParser, PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};

/// Reads a value by `parser`. Bytes that are no text reach it as text that nobody understands: clap's own words for them name neither
/// the option nor the value.
pub fn read<P: TypedValueParser>(parser: P) -> Value<P> {
    Value(parser)
}

/// See [`read`].
#[derive(Clone, Debug)]
pub struct Value<P>(P);

impl<P: TypedValueParser> TypedValueParser for Value<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, Error> {
        let text = value.to_string_lossy();
        self.0.parse_ref(command, argument, OsStr::new(&*text))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

/// What to say of a value that is not understood.
pub fn takes(what: impl Display) -> String {
    format!("it takes {what}")
}

/// Text as it is.
pub fn text() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new()
        .try_map(|text| text.into_string().map_err(|_| takes("text in UTF-8")))
}

/// A process id.
pub fn pid() -> impl TypedValueParser<Value = i32> {
    read(|text: &str| {
        let pid = text.parse().ok().filter(|pid| *pid > 0);
        pid.ok_or_else(|| takes(format_args!("a process id, 1 to {}", i32::MAX)))
    })
}

/// A whole number up to `most`.
pub fn whole<T: TryFrom<u64> + Clone + Send + Sync + 'static>(
    least: u64,
    most: u64,
) -> impl TypedValueParser<Value = T> {
    read(move |text: &str| {
        let number = text.parse().ok();
        let number = number.filter(|number| (least..=most).contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| takes(format_args!("a whole number, {least} to {most}")))
    })
}

/// Seconds, with fractions, that `fit`; `what` says which do.
///
/// # Errors
/// What it takes.
pub fn seconds(text: &str, fit: impl Fn(f64) -> bool, what: &str) -> Result<Duration, String> {
    let number = text.parse().ok().filter(|number| fit(*number));
    let time = number.and_then(|number| Duration::try_from_secs_f64(number).ok());
    time.ok_or_else(|| takes(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::builder::PossibleValuesParser;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    fn said<P>(parser: P, value: &[u8]) -> String
    where
        P: TypedValueParser + Send + Sync + 'static,
        P::Value: Clone + Send + Sync + 'static,
    {
        let option = Arg::new("o").long("option").value_parser(parser);
        let line = [
            OsString::from("x"),
            "--option".into(),
            OsString::from_vec(value.to_vec()),
        ];
        let result = Command::new("x").arg(option).try_get_matches_from(line);
        result.map_or_else(|error| error.to_string(), |_| "fine".into())
    }

    #[test]
    fn a_wrong_value_is_told_with_option_value_and_what_is_taken() {
        for (value, shown) in [
            (&b"abc"[..], "abc"),
            (b"0", "0"),
            (b"2147483648", "2147483648"),
            (b"\xff", "\u{fffd}"),
        ] {
            let said = said(pid(), value);
            let line = format!("error: invalid value '{shown}' for '--option <o>': it takes a process id, 1 to 2147483647");
            assert_eq!(said.lines().next().unwrap(), line);
        }
        assert_eq!(said(pid(), b"2147483647"), "fine");
        assert!(said(whole::<u8>(1, 100), b"101")
            .contains("'101' for '--option <o>': it takes a whole number, 1 to 100"));
        assert_eq!(said(whole::<u8>(1, 100), b"100"), "fine");
        let words = || read(PossibleValuesParser::new(["on", "off"]));
        for value in [&b"maybe"[..], b"\xffon"] {
            let said = said(words(), value);
            assert!(
                said.contains("for '--option <o>'") && said.contains("[possible values: on, off]"),
                "{said}"
            );
        }
        assert_eq!(said(words(), b"on"), "fine");
    }
}
