//! Where a field lies in the running kernel's structs, read from its BTF (`/sys/kernel/btf/vmlinux`).
//!
//! A small walker of our own, because aya keeps member offsets to itself. It knows the BTF format and nothing about
//! which fields matter. The bytes are the kernel's, but nothing here trusts them: every index is checked, every walk is
//! bounded, and a file that makes no sense is an error.
//!
//! ```text
//! header │ types: one record each, id = position from 1 │ strings: NUL-terminated, by offset
//! ```

use std::collections::HashMap;
use thiserror::Error;

/// Nested anonymous members and typedefs followed before the file is called malformed.
const MAX_DEPTH: usize = 16;
/// Members looked at for one name. The kernel's largest structs have some hundreds; a file of structs that contain each
/// other would have no end.
const MAX_MEMBERS: usize = 100_000;
const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 12;
const MEMBER_BYTES: usize = 12;
const ENUMERATOR_BYTES: usize = 8;
const PARAMETER_BYTES: usize = 8;
/// What the kernel puts before the name of a tracepoint whose arguments it describes.
const TRACEPOINT_PREFIX: &str = "btf_trace_";

/// BTF kinds, as far as their size has to be known.
mod kind {
    pub(crate) const INT: u32 = 1;
    pub(crate) const PTR: u32 = 2;
    pub(crate) const ARRAY: u32 = 3;
    pub(crate) const STRUCT: u32 = 4;
    pub(crate) const UNION: u32 = 5;
    pub(crate) const ENUM: u32 = 6;
    pub(crate) const TYPEDEF: u32 = 8;
    pub(crate) const VOLATILE: u32 = 9;
    pub(crate) const CONST: u32 = 10;
    pub(crate) const RESTRICT: u32 = 11;
    pub(crate) const FUNC: u32 = 12;
    pub(crate) const FUNC_PROTO: u32 = 13;
    pub(crate) const VAR: u32 = 14;
    pub(crate) const DATASEC: u32 = 15;
    pub(crate) const DECL_TAG: u32 = 17;
    pub(crate) const TYPE_TAG: u32 = 18;
    pub(crate) const ENUM64: u32 = 19;
}

/// Why a file or a field cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum BtfError {
    /// Not BTF, or of another byte order.
    #[error("not BTF in this machine's byte order")]
    NotBtf,
    /// A record reaches past the end.
    #[error("malformed BTF: {0}")]
    Malformed(&'static str),
    /// A record has a kind this walker does not know the size of, so what follows it cannot be found.
    #[error("BTF cannot be parsed: type {id} is of kind {kind}, which is not known here")]
    UnknownKind {
        /// The record's number.
        id: usize,
        /// Its kind.
        kind: u32,
    },
    /// This kernel has no such struct.
    #[error("this kernel has no struct {0}")]
    NoStruct(String),
    /// The struct has no such member.
    #[error("this kernel's struct {owner} has no field {member}")]
    NoMember {
        /// The struct, as a path from the one asked for.
        owner: String,
        /// The member.
        member: String,
    },
    /// This kernel has no such enum.
    #[error("this kernel has no enum {0}")]
    NoEnum(String),
    /// The enum has no such enumerator.
    #[error("this kernel's enum {owner} has no {name}")]
    NoEnumerator {
        /// The enum.
        owner: String,
        /// The enumerator.
        name: String,
    },
    /// This kernel has no such tracepoint.
    #[error("this kernel has no tracepoint {0}")]
    NoTracepoint(String),
    /// This kernel has no such function, or only as a part of others.
    #[error("this kernel has no function {0}")]
    NoFunction(String),
    /// The member is not of the size that the programs read.
    #[error("this kernel's {path} has {actual} bytes instead of {expected}")]
    WrongSize {
        /// The field.
        path: String,
        /// Bytes it has here; 0 for a bit field.
        actual: u32,
        /// Bytes the programs read.
        expected: u32,
    },
}

/// A parsed BTF file.
#[derive(Debug)]
pub(crate) struct Layouts<'a> {
    strings: &'a [u8],
    types: Vec<Type<'a>>,
    /// Structs by name; of several with one name the first.
    structs: HashMap<&'a [u8], u32>,
    /// Enums by name.
    enums: HashMap<&'a [u8], u32>,
    /// Typedefs of tracepoints by name.
    tracepoints: HashMap<&'a [u8], u32>,
    /// Functions by name.
    functions: HashMap<&'a [u8], u32>,
}

/// One record. `size_or_type` is a size for structs, unions, integers and enums, and a type id for the rest.
#[derive(Clone, Copy, Debug)]
struct Type<'a> {
    kind: u32,
    /// The members' bit offsets carry a width in their upper byte.
    has_bit_fields: bool,
    size_or_type: u32,
    /// What follows the record: members, or an array's description.
    rest: &'a [u8],
}

#[derive(Clone, Copy)]
struct Member {
    name: u32,
    kind: u32,
    bits: u32,
    bit_size: u32,
}

impl<'a> Layouts<'a> {
    /// Reads the records of a whole BTF file.
    pub(crate) fn parse(file: &'a [u8]) -> Result<Self, BtfError> {
        let header = file.get(..HEADER_BYTES).ok_or(BtfError::NotBtf)?;
        let magic = header.first_chunk::<2>().map(|bytes| u16::from_ne_bytes(*bytes));
        if magic != Some(MAGIC) {
            return Err(BtfError::NotBtf);
        }
        let body = index(word(header, 4)?);
        let section = |offset: usize, length: usize| {
            let start = body.checked_add(index(word(header, offset)?)).ok_or(BtfError::Malformed("section"))?;
            let end = start.checked_add(index(word(header, length)?)).ok_or(BtfError::Malformed("section"))?;
            file.get(start..end).ok_or(BtfError::Malformed("a section reaches past the end"))
        };
        let (mut records, strings) = (section(8, 12)?, section(16, 20)?);

        let mut types = vec![Type { kind: 0, has_bit_fields: false, size_or_type: 0, rest: &[] }];
        let (mut structs, mut enums) = (HashMap::new(), HashMap::new());
        let (mut tracepoints, mut functions) = (HashMap::new(), HashMap::new());
        while !records.is_empty() {
            let info = word(records, 4)?;
            let kind = (info >> 24) & 0x1f;
            let tail =
                trailing_bytes(kind, index(info & 0xffff)).ok_or(BtfError::UnknownKind { id: types.len(), kind })?;
            let rest =
                records.get(RECORD_BYTES..RECORD_BYTES + tail).ok_or(BtfError::Malformed("a record is cut off"))?;
            let id = u32::try_from(types.len()).map_err(|_| BtfError::Malformed("too many types"))?;
            let name = text(strings, word(records, 0)?)?;
            match kind {
                kind::STRUCT => structs.entry(name).or_insert(id),
                kind::ENUM => enums.entry(name).or_insert(id),
                kind::FUNC => functions.entry(name).or_insert(id),
                kind::TYPEDEF if name.starts_with(TRACEPOINT_PREFIX.as_bytes()) => {
                    tracepoints.entry(name).or_insert(id)
                }
                _ => &mut 0,
            };
            types.push(Type { kind, has_bit_fields: info >> 31 != 0, size_or_type: word(records, 8)?, rest });
            records = records.get(RECORD_BYTES + tail..).unwrap_or_default();
        }
        Ok(Self { strings, types, structs, enums, tracepoints, functions })
    }

    /// Byte offset of a field given as `struct.member.member`, which must have `size` bytes. Anonymous structs and
    /// unions on the way need not be named.
    pub(crate) fn offset(&self, path: &str, size: u32) -> Result<u32, BtfError> {
        let mut names = path.split('.');
        let mut owner = names.next().unwrap_or_default().to_owned();
        let mut current = *self.structs.get(owner.as_bytes()).ok_or_else(|| BtfError::NoStruct(owner.clone()))?;
        let mut bits = 0_u32;
        let mut bit_size = 0;
        let mut budget = MAX_MEMBERS;
        for name in names {
            let found = self.member(current, name.as_bytes(), 0, &mut budget)?;
            let member = found.ok_or_else(|| BtfError::NoMember { owner: owner.clone(), member: name.to_owned() })?;
            bits = bits.checked_add(member.bits).ok_or(BtfError::Malformed("an offset overflows"))?;
            bit_size = member.bit_size;
            current = member.kind;
            owner.push('.');
            owner.push_str(name);
        }
        let actual = if bit_size == 0 && bits.is_multiple_of(8) { self.size(current, 0)? } else { 0 };
        if actual == size { Ok(bits / 8) } else { Err(BtfError::WrongSize { path: owner, actual, expected: size }) }
    }

    /// The number of an enumerator, given with its enum.
    pub(crate) fn enumerator(&self, owner: &str, name: &str) -> Result<u32, BtfError> {
        let id = *self.enums.get(owner.as_bytes()).ok_or_else(|| BtfError::NoEnum(owner.to_owned()))?;
        for raw in self.plain(id)?.rest.chunks_exact(ENUMERATOR_BYTES) {
            if text(self.strings, word(raw, 0)?)? == name.as_bytes() {
                return word(raw, 4);
            }
        }
        Err(BtfError::NoEnumerator { owner: owner.to_owned(), name: name.to_owned() })
    }

    /// How many arguments a BTF tracepoint hands over.
    pub(crate) fn tracepoint_arguments(&self, tracepoint: &str) -> Result<usize, BtfError> {
        let name = format!("{TRACEPOINT_PREFIX}{tracepoint}");
        let pointer = self.tracepoints.get(name.as_bytes()).map(|id| self.plain(*id)).transpose()?;
        let function = pointer.map(|pointer| self.plain(pointer.size_or_type)).transpose()?;
        match function {
            // The first one is the tracer's own.
            Some(function) if function.kind == kind::FUNC_PROTO => {
                Ok((function.rest.len() / PARAMETER_BYTES).saturating_sub(1))
            }
            Some(_) | None => Err(BtfError::NoTracepoint(tracepoint.to_owned())),
        }
    }

    /// How many arguments a function has.
    pub(crate) fn function_arguments(&self, function: &str) -> Result<usize, BtfError> {
        let id = self.functions.get(function.as_bytes()).ok_or_else(|| BtfError::NoFunction(function.to_owned()))?;
        let prototype = self.plain(self.plain(*id)?.size_or_type)?;
        if prototype.kind != kind::FUNC_PROTO {
            return Err(BtfError::Malformed("a function has no prototype"));
        }
        Ok(prototype.rest.len() / PARAMETER_BYTES)
    }

    /// Finds a member by name, also within anonymous structs and unions; its offset counts from the outer one.
    fn member(&self, id: u32, name: &[u8], depth: usize, budget: &mut usize) -> Result<Option<Member>, BtfError> {
        let outer = self.plain(id)?;
        if depth > MAX_DEPTH {
            return Err(BtfError::Malformed("structs nest too deeply"));
        }
        if outer.kind != kind::STRUCT && outer.kind != kind::UNION {
            return Ok(None);
        }
        for raw in outer.rest.chunks_exact(MEMBER_BYTES) {
            *budget = budget.checked_sub(1).ok_or(BtfError::Malformed("structs contain each other"))?;
            let position = word(raw, 8)?;
            let (bits, bit_size) =
                if outer.has_bit_fields { (position & 0x00ff_ffff, position >> 24) } else { (position, 0) };
            let member = Member { name: word(raw, 0)?, kind: word(raw, 4)?, bits, bit_size };
            let member_name = text(self.strings, member.name)?;
            if member_name == name {
                return Ok(Some(member));
            }
            if member_name.is_empty()
                && let Some(inner) = self.member(member.kind, name, depth + 1, budget)?
            {
                let bits = inner.bits.checked_add(bits).ok_or(BtfError::Malformed("an offset overflows"))?;
                return Ok(Some(Member { bits, ..inner }));
            }
        }
        Ok(None)
    }

    /// The type behind typedefs and qualifiers.
    fn plain(&self, mut id: u32) -> Result<Type<'a>, BtfError> {
        for _ in 0..MAX_DEPTH {
            let found = *self.types.get(index(id)).ok_or(BtfError::Malformed("a type id is out of range"))?;
            match found.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    id = found.size_or_type;
                }
                _ => return Ok(found),
            }
        }
        Err(BtfError::Malformed("a chain of typedefs does not end"))
    }

    /// Size in bytes.
    fn size(&self, id: u32, depth: usize) -> Result<u32, BtfError> {
        if depth > MAX_DEPTH {
            return Err(BtfError::Malformed("arrays nest too deeply"));
        }
        let found = self.plain(id)?;
        match found.kind {
            // Pointers of a kernel that can run the daemon have the daemon's size: the programs are 64-bit anyway.
            kind::PTR => Ok(8),
            kind::ARRAY => {
                let element = self.size(word(found.rest, 0)?, depth + 1)?;
                element.checked_mul(word(found.rest, 8)?).ok_or(BtfError::Malformed("an array is too large"))
            }
            kind::INT | kind::STRUCT | kind::UNION | kind::ENUM | kind::ENUM64 => Ok(found.size_or_type),
            _ => Err(BtfError::Malformed("a member has no size")),
        }
    }
}

/// Bytes after a record's first twelve; `None` for a kind of newer kernels.
fn trailing_bytes(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        kind::INT | kind::VAR | kind::DECL_TAG => 4,
        kind::ARRAY => 12,
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => count * 12,
        kind::ENUM | kind::FUNC_PROTO => count * 8,
        // Pointers, forward declarations, typedefs, qualifiers, functions, floats, type tags.
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

fn word(bytes: &[u8], offset: usize) -> Result<u32, BtfError> {
    let word = bytes.get(offset..).and_then(<[u8]>::first_chunk::<4>);
    word.map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(BtfError::Malformed("a number is cut off"))
}

fn text(strings: &[u8], offset: u32) -> Result<&[u8], BtfError> {
    let rest = strings.get(index(offset)..).ok_or(BtfError::Malformed("a name is out of range"))?;
    let end = rest.iter().position(|&byte| byte == 0).ok_or(BtfError::Malformed("a name does not end"))?;
    Ok(rest.get(..end).unwrap_or_default())
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file with `struct outer { u8 pad[4]; struct { union { u32 inner; }; }; u32 flag:3; }`.
    fn small() -> Vec<u8> {
        let strings = b"\0outer\0pad\0inner\0flag\0u32\0u8\0reason\0FULL\0btf_trace_drop\0";
        let name = |wanted: &str| {
            let text = std::str::from_utf8(strings).unwrap();
            u32::try_from(text.find(&format!("\0{wanted}\0")).unwrap() + 1).unwrap()
        };
        let info = |kind: u32, count: u32, flag: u32| (flag << 31) | (kind << 24) | count;
        let mut types: Vec<u32> = Vec::new();
        types.extend([name("u32"), info(kind::INT, 0, 0), 4, 32]); // 1
        types.extend([name("u8"), info(kind::INT, 0, 0), 1, 8]); // 2
        types.extend([0, info(kind::ARRAY, 0, 0), 0, 2, 1, 4]); // 3
        types.extend([0, info(kind::UNION, 1, 0), 4, name("inner"), 1, 0]); // 4
        types.extend([0, info(kind::STRUCT, 1, 0), 4, 0, 4, 0]); // 5
        types.extend([name("outer"), info(kind::STRUCT, 3, 1), 12]); // 6
        types.extend([name("pad"), 3, 0, 0, 5, 32, name("flag"), 1, (3 << 24) | 64]);
        types.extend([name("reason"), info(kind::ENUM, 1, 0), 4, name("FULL"), 40]); // 7
        types.extend([0, info(kind::FUNC_PROTO, 3, 0), 0, 0, 0, 0, 1, 0, 7]); // 8
        types.extend([0, info(kind::PTR, 0, 0), 8]); // 9
        types.extend([name("btf_trace_drop"), info(kind::TYPEDEF, 0, 0), 9]); // 10
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut file = MAGIC.to_ne_bytes().to_vec();
        file.extend([1, 0]);
        let lengths = [types.len(), strings.len()].map(|length| u32::try_from(length).unwrap());
        for field in [24, 0, lengths[0], lengths[0], lengths[1]] {
            file.extend(field.to_ne_bytes());
        }
        file.extend(types);
        file.extend(strings);
        file
    }

    #[test]
    fn a_field_is_found_through_anonymous_members() {
        let file = small();
        let layouts = Layouts::parse(&file).unwrap();
        assert_eq!(layouts.offset("outer.inner", 4), Ok(4));
        assert_eq!(layouts.offset("outer.pad", 4), Ok(0));
    }

    #[test]
    fn an_enumerator_has_its_number_and_a_tracepoint_its_arguments() {
        let file = small();
        let layouts = Layouts::parse(&file).unwrap();
        assert_eq!(layouts.enumerator("reason", "FULL"), Ok(40));
        assert_eq!(layouts.tracepoint_arguments("drop"), Ok(2));
        let missing = layouts.enumerator("reason", "EMPTY").unwrap_err().to_string();
        assert_eq!(missing, "this kernel's enum reason has no EMPTY");
        assert_eq!(layouts.enumerator("colour", "RED"), Err(BtfError::NoEnum("colour".to_owned())));
        assert_eq!(layouts.tracepoint_arguments("rise"), Err(BtfError::NoTracepoint("rise".to_owned())));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let file = small();
        let layouts = Layouts::parse(&file).unwrap();
        let said = |path, size| layouts.offset(path, size).unwrap_err().to_string();
        assert_eq!(said("nothing.at_all", 4), "this kernel has no struct nothing");
        assert_eq!(said("outer.missing", 4), "this kernel's struct outer has no field missing");
        assert_eq!(said("outer.inner", 8), "this kernel's outer.inner has 4 bytes instead of 8");
        assert_eq!(said("outer.flag", 4), "this kernel's outer.flag has 0 bytes instead of 4");
    }

    #[test]
    fn a_file_cut_off_anywhere_is_refused_or_read_but_never_panics() {
        let file = small();
        for length in 0..file.len() {
            if let Ok(layouts) = Layouts::parse(&file[..length]) {
                let _answer = layouts.offset("outer.inner", 4);
                let _answer = layouts.enumerator("reason", "FULL");
                let _answer = layouts.tracepoint_arguments("drop");
            }
        }
    }

    #[test]
    fn an_unknown_kind_is_named_by_its_number() {
        let mut file = small();
        // The record of the first type, an integer.
        file[HEADER_BYTES + 4..HEADER_BYTES + 8].copy_from_slice(&(25_u32 << 24).to_ne_bytes());
        let error = Layouts::parse(&file).map(drop).unwrap_err();
        assert_eq!(error, BtfError::UnknownKind { id: 1, kind: 25 });
        assert_eq!(error.to_string(), "BTF cannot be parsed: type 1 is of kind 25, which is not known here");
    }

    #[test]
    fn a_typedef_that_names_itself_ends() {
        let mut file = small();
        // The anonymous struct's record (type 5) becomes a typedef of itself; its member then reads as a new record.
        let record = HEADER_BYTES + 4 * (4 + 4 + 6 + 6);
        file[record + 4..record + 8].copy_from_slice(&(kind::TYPEDEF << 24).to_ne_bytes());
        file[record + 8..record + 12].copy_from_slice(&5_u32.to_ne_bytes());
        if let Ok(layouts) = Layouts::parse(&file) {
            let _answer = layouts.offset("outer.inner", 4);
        }
    }

    #[test]
    fn the_running_kernel_tells_where_a_socket_keeps_its_queue() {
        let Ok(file) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            println!("SKIP: this kernel exposes no BTF");
            return;
        };
        let layouts = Layouts::parse(&file).unwrap();
        let depth = layouts.offset("sock.sk_ack_backlog", 4).unwrap();
        let backlog = layouts.offset("sock.sk_max_ack_backlog", 4).unwrap();
        assert_eq!(backlog, depth + 4, "the kernel declares the two together");
        assert_eq!(layouts.offset("sock.__sk_common.skc_state", 1), Ok(18));
        assert_eq!(layouts.offset("sock.__sk_common.skc_family", 2), Ok(16));
        assert_eq!(layouts.function_arguments("inet_csk_complete_hashdance"), Ok(4));
        let missing = layouts.function_arguments("no_such_function").unwrap_err().to_string();
        assert_eq!(missing, "this kernel has no function no_such_function");
    }

    proptest! {
        #[test]
        fn damaged_bytes_never_panic(position in 0_usize..420, byte: u8, second in 0_usize..420, other: u8) {
            let mut file = small();
            for (position, byte) in [(position, byte), (second, other)] {
                if let Some(slot) = file.get_mut(position) {
                    *slot = byte;
                }
            }
            if let Ok(layouts) = Layouts::parse(&file) {
                for path in ["outer.inner", "outer.pad", "outer.flag", "u32.x"] {
                    let _answer = layouts.offset(path, 4);
                }
                let _answer = layouts.enumerator("reason", "FULL");
                let _answer = layouts.tracepoint_arguments("drop");
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut file = MAGIC.to_ne_bytes().to_vec();
            file.extend(bytes);
            if let Ok(layouts) = Layouts::parse(&file) {
                let _answer = layouts.offset("a.b", 4);
            }
        }
    }
}
