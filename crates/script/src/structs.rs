//! `struct`: Roberto Ierusalimschy's `struct` 0.3, as in redis-server: C structures in strings.

use crate::args::Args;
use crate::state;
use mlua::{Lua, MultiValue, Result, Table, Value};

/// Maximum size of an integer in bytes.
const INT_BYTES_MAX: usize = 32;
/// Alignment for the option `!` without a number.
const ALIGN_MAX: usize = 16;

/// Creates the table `struct`.
pub(crate) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    macro_rules! function {
        ($name:literal, $run:expr) => {
            library
                .set($name, lua.create_function(|lua, values: MultiValue| $run(&Args::new(lua, values)))?)?;
        };
    }
    // As in redis-server, a nil follows the arguments, so a missing argument reads as nil.
    let pack = |lua: &Lua, mut values: MultiValue| {
        values.push_back(Value::Nil);
        pack(&Args::new(lua, values))
    };
    library.set("pack", lua.create_function(pack)?)?;
    function!("unpack", unpack);
    function!("size", size);
    Ok(library)
}

/// A format string, and the position of the next option in it.
struct Format<'f, 'l> {
    args: &'f Args<'l>,
    text: &'f [u8],
    at: usize,
    little: bool,
    align: usize,
}

/// One option of a format, with the size of its value in bytes.
struct FormatOption {
    code: u8,
    size: usize,
}

impl<'f, 'l> Format<'f, 'l> {
    fn new(args: &'f Args<'l>, text: &'f [u8]) -> Format<'f, 'l> {
        Format { args, text, at: 0, little: cfg!(target_endian = "little"), align: 1 }
    }
    fn number(&mut self, default: usize) -> Result<usize> {
        let digits = self.text[self.at..].iter().take_while(|c| c.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(default);
        }
        let mut number = 0usize;
        for digit in &self.text[self.at..self.at + digits] {
            number = number * 10 + usize::from(digit - b'0');
            if number > i32::MAX as usize {
                return Err(self.args.error("integral size overflow"));
            }
        }
        self.at += digits;
        Ok(number)
    }
    fn next(&mut self) -> Result<Option<FormatOption>> {
        let Some(&code) = self.text.get(self.at) else { return Ok(None) };
        self.at += 1;
        let size = match code {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'i' | b'I' => {
                let size = self.number(4)?;
                if size > INT_BYTES_MAX {
                    return Err(self
                        .args
                        .error(format!("integral size {size} is larger than limit of {INT_BYTES_MAX}")));
                }
                size
            }
            b'l' | b'L' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number(1)?,
            b's' | b' ' | b'<' | b'>' | b'!' => 0,
            other => {
                return Err(self.args.bad(1, &format!("invalid format option '{}'", char::from(other))));
            }
        };
        Ok(Some(FormatOption { code, size }))
    }
    /// Number of bytes of padding before the value of an option at offset `len`.
    fn padding(&self, option: &FormatOption, len: usize) -> usize {
        if option.size == 0 || option.code == b'c' {
            return 0;
        }
        let align = option.size.min(self.align);
        if align > 1 { (align - (len & (align - 1))) & (align - 1) } else { 0 }
    }
    fn control(&mut self, code: u8) -> Result<()> {
        match code {
            b'<' => self.little = true,
            b'>' => self.little = false,
            b'!' => {
                let align = self.number(ALIGN_MAX)?;
                if align == 0 || !align.is_power_of_two() {
                    return Err(self.args.error(format!("alignment {align} is not a power of 2")));
                }
                self.align = align;
            }
            _ => {}
        }
        Ok(())
    }
}

fn put_int(out: &mut Vec<u8>, value: u64, negative: bool, little: bool, size: usize) {
    let fill = if negative { 0xff } else { 0 };
    let from = out.len();
    out.extend((0..size).map(|i| if i < 8 { (value >> (8 * i)) as u8 } else { fill }));
    if !little {
        out[from..].reverse();
    }
}

fn pack(args: &Args<'_>) -> Result<Value> {
    let format = args.string(1)?;
    let format = &*format.as_bytes();
    let mut format = Format::new(args, format);
    let (mut out, mut n) = (Vec::new(), 2);
    while let Some(option) = format.next()? {
        let padding = format.padding(&option, out.len());
        out.resize(out.len() + padding, 0);
        state::charge(1 + option.size)?;
        state::check_bytes(out.len() + option.size)?;
        match option.code {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = args.number(n)?;
                let value = if number < 0.0 { number as i64 as u64 } else { number as u64 };
                put_int(&mut out, value, false, format.little, option.size);
                n += 1;
            }
            b'x' => out.push(0),
            b'f' => {
                let bits = (args.number(n)? as f32).to_bits();
                put_int(&mut out, u64::from(bits), false, format.little, 4);
                n += 1;
            }
            b'd' => {
                put_int(&mut out, args.number(n)?.to_bits(), false, format.little, 8);
                n += 1;
            }
            b'c' | b's' => {
                let text = args.string(n)?;
                let text = &*text.as_bytes();
                let size = if option.size == 0 { text.len() } else { option.size };
                if text.len() < size {
                    return Err(args.bad(n + 1, "string too short"));
                }
                state::charge(size)?;
                state::check_bytes(out.len() + size)?;
                out.extend_from_slice(&text[..size]);
                if option.code == b's' {
                    out.push(0);
                }
                n += 1;
            }
            code => format.control(code)?,
        }
    }
    Ok(Value::String(args.lua.create_string(out)?))
}

fn unpack(args: &Args<'_>) -> Result<MultiValue> {
    let (format, data) = (args.string(1)?, args.string(2)?);
    let (format, data) = (&*format.as_bytes(), &*data.as_bytes());
    let pos = args.int_or(3, 1)?;
    if pos <= 0 {
        return Err(args.bad(3, "offset must be 1 or greater"));
    }
    let mut at = (pos - 1) as usize;
    let mut format = Format::new(args, format);
    let mut values: Vec<Value> = Vec::new();
    while let Some(option) = format.next()? {
        at = at.saturating_add(format.padding(&option, at));
        state::charge(1)?;
        if at > data.len() || option.size > data.len() - at {
            return Err(args.bad(2, "data string too short"));
        }
        args.check_stack(args.len() + values.len(), "too many results")?;
        let bytes = &data[at..at + option.size];
        let mut size = option.size;
        match option.code {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let signed = option.code.is_ascii_lowercase();
                values.push(Value::Number(get_int(bytes, format.little, signed)));
            }
            b'x' => {}
            b'f' => {
                let bits = get_int(bytes, format.little, false) as u32;
                values.push(Value::Number(f64::from(f32::from_bits(bits))));
            }
            b'd' => values.push(Value::Number(f64::from_bits(get_bits(bytes, format.little)))),
            b'c' => {
                if size == 0 {
                    let number = values.pop().map(|value| args.lua.coerce_number(value)).transpose()?;
                    let Some(n) = number.flatten() else {
                        return Err(args.error("format 'c0' needs a previous size"));
                    };
                    size = n as usize;
                    if n < 0.0 || size > data.len() - at {
                        return Err(args.bad(2, "data string too short"));
                    }
                }
                state::charge(size)?;
                values.push(Value::String(args.lua.create_string(&data[at..at + size])?));
            }
            b's' => {
                let Some(len) = data[at..].iter().position(|c| *c == 0) else {
                    return Err(args.error("unfinished string in data"));
                };
                state::charge(len)?;
                values.push(Value::String(args.lua.create_string(&data[at..at + len])?));
                size = len + 1;
            }
            code => format.control(code)?,
        }
        at += size;
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(values.into_iter().collect())
}

fn get_bits(bytes: &[u8], little: bool) -> u64 {
    let fold = |all: u64, byte: &u8| all << 8 | u64::from(*byte);
    if little { bytes.iter().rev().fold(0, fold) } else { bytes.iter().fold(0, fold) }
}

fn get_int(bytes: &[u8], little: bool, signed: bool) -> f64 {
    let bits = get_bits(bytes, little);
    if !signed {
        return bits as f64;
    }
    // As in C, extend the sign from the option's size.
    let mask = if bytes.len() >= 8 { 0 } else { u64::MAX << (bytes.len() * 8).saturating_sub(1) };
    if bits & mask != 0 { (bits | mask) as i64 as f64 } else { bits as i64 as f64 }
}

fn size(args: &Args<'_>) -> Result<f64> {
    let format = args.string(1)?;
    let format = &*format.as_bytes();
    let mut format = Format::new(args, format);
    let mut len = 0usize;
    while let Some(option) = format.next()? {
        len = len.saturating_add(format.padding(&option, len));
        if option.code == b's' {
            return Err(args.bad(1, "option 's' has no fixed size"));
        }
        if option.code == b'c' && option.size == 0 {
            return Err(args.bad(1, "option 'c0' has no fixed size"));
        }
        len = len.saturating_add(option.size);
        if option.size == 0 {
            format.control(option.code)?;
        }
    }
    Ok(len as f64)
}
