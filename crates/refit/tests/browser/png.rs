//! Recompresses screenshots without PNG filters, which makes flat images much smaller.

use std::io::{Read, Write};

use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

const SIGNATURE: usize = 8;
/// Where the header says how wide the picture is, and of how many channels.
const WIDTH: usize = 16;
const DEPTH_AND_KIND: usize = 24;

/// The same picture, packed again.
pub fn packed(png: &[u8]) -> Vec<u8> {
    let channels = match png[DEPTH_AND_KIND..][..2] {
        [8, 2] => 3,
        [8, 6] => 4,
        ref other => panic!("{other:?} is not what a browser draws"),
    };
    let row = u32::from_be_bytes(png[WIDTH..][..4].try_into().unwrap()) as usize * channels;
    let mut data = Vec::new();
    let mut rest = &png[SIGNATURE..];
    while !rest.is_empty() {
        let (length, body) = (u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize, &rest[4..]);
        if body[..4] == *b"IDAT" {
            data.extend(&body[4..4 + length]);
        }
        rest = &body[length + 8..];
    }
    let mut filtered = Vec::new();
    ZlibDecoder::new(&data[..]).read_to_end(&mut filtered).unwrap();
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    let mut above = vec![0; row];
    for line in filtered.chunks(row + 1) {
        above = unfiltered(line[0], &line[1..], &above, channels);
        encoder.write_all(&[0]).unwrap();
        encoder.write_all(&above).unwrap();
    }
    let header = &png[SIGNATURE + 8..][..13];
    let mut packed = png[..SIGNATURE].to_vec();
    for (kind, body) in [(b"IHDR", header), (b"IDAT", &encoder.finish().unwrap()), (b"IEND", &[])] {
        let mut crc = Crc::new();
        crc.update(kind);
        crc.update(body);
        packed.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
        packed.extend(kind);
        packed.extend(body);
        packed.extend(crc.sum().to_be_bytes());
    }
    packed
}

fn unfiltered(filter: u8, line: &[u8], above: &[u8], channels: usize) -> Vec<u8> {
    let mut plain: Vec<u8> = Vec::with_capacity(line.len());
    for (n, byte) in line.iter().enumerate() {
        let (left, corner) =
            n.checked_sub(channels).map_or((0, 0), |n| (i32::from(plain[n]), i32::from(above[n])));
        let up = i32::from(above[n]);
        let guess = match filter {
            0 => 0,
            1 => left,
            2 => up,
            3 => (left + up) / 2,
            _ => {
                let distance = |to: i32| (left + up - corner - to).abs();
                [left, up, corner].into_iter().min_by_key(|to| distance(*to)).unwrap()
            }
        };
        plain.push(byte.wrapping_add(guess as u8));
    }
    plain
}
