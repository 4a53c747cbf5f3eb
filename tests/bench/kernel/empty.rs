//! Programs that only return, as many as the governor has on the hooks that every connection passes and in the same
//! places: what the kernel takes for running them is the least that any observer there costs.

use anyhow::{Context, Result};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf, EbpfLoader};
use object::write::{Object, StandardSegment, Symbol, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope};

/// Hooks of the tracepoint tier that run for every connection; on each are a program and its twin.
pub(crate) const HOOKS: [&str; 3] = ["inet_sock_set_state", "sk_data_ready", "kfree_skb"];

/// Programs on one hook of the governor's.
pub(crate) const TWINS: usize = 2;

/// `return 0`.
const CODE: [u8; 16] = [0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];

/// Attaches so many to each of the governor's hooks. They detach when this is dropped.
pub(crate) fn attach_to_each(programs: usize) -> Result<Vec<Ebpf>> {
    HOOKS.iter().flat_map(|hook| std::iter::repeat_n(hook, programs)).map(|hook| attach(hook)).collect()
}

/// Attaches one.
pub(crate) fn attach(hook: &str) -> Result<Ebpf> {
    let btf = Btf::from_sys_fs().context("no kernel BTF")?;
    let mut object = EbpfLoader::new().btf(Some(&btf)).load(&elf(hook)?).context("cannot read an empty program")?;
    let program: &mut BtfTracePoint = object.program_mut("empty").context("the program is not there")?.try_into()?;
    program.load(hook, &btf).with_context(|| format!("cannot load an empty program for {hook}"))?;
    program.attach().with_context(|| format!("cannot attach an empty program to {hook}"))?;
    Ok(object)
}

fn elf(hook: &str) -> Result<Vec<u8>> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let segment = object.segment_name(StandardSegment::Text).to_vec();
    let code = object.add_section(segment.clone(), format!("tp_btf/{hook}").into_bytes(), SectionKind::Text);
    object.append_section_data(code, &CODE, 8);
    let licence = object.add_section(segment, b"license".to_vec(), SectionKind::Data);
    object.append_section_data(licence, b"GPL\0", 1);
    object.add_symbol(Symbol {
        name: b"empty".to_vec(),
        value: 0,
        size: 16,
        kind: SymbolKind::Text,
        scope: SymbolScope::Dynamic,
        weak: false,
        section: SymbolSection::Section(code),
        flags: SymbolFlags::None,
    });
    object.write().context("cannot write an empty program")
}
