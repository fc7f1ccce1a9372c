"""Reads fiche's archives, indexes, events and volumes; written from docs/format.md alone, to prove it complete.

python second_reader.py FILE.fiche         prints what the file holds, a line a record, column, or
                                          run of blocks that are not zero
python second_reader.py --check FOLDER     compares every NAME.fiche with its NAME.txt, and
                                          every streams/NAME.gz with its index: the one beside
                                          it (NAME.gz.fidx), else the one at its end; and
                                          every streams/inside*.lz4 with the one at its end; and
                                          phrases/NAME.unit, by its NAME.index if it has one; and
                                          every events/NAME.fiche with its NAME.columns; and
                                          every volumes/NAME.fiche with its NAME.blocks
python second_reader.py --refuse FOLDER    every *.fiche and volumes/*.fiche there has to be refused

Needs Python 3.10 or newer, BLAKE3, and a Zstandard module that can do without magic numbers:
`pip install blake3 zstandard`. Dictionary files are looked for beside the archive.
"""

import bz2
import gzip
import hashlib
import heapq
import io
import lzma
import math
import random
import struct
import sys
import unicodedata
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, Callable, Iterable, Iterator

import blake3
import zstandard

MAGIC = bytes.fromhex("8F 66 69 63 68 65 0D 0A")
MARKER = bytes.fromhex("9E F1 C4 E5")
HEADER = TRAILER = 32
CHECKSUM, BLOCK_CHECKSUM = 4, 0x66696300
ARCHIVE_FILE, DICTIONARY_FILE, INDEX_FILE, EVENTS_FILE, VOLUME_FILE = 1, 2, 3, 4, 5
DICTIONARY, MODEL, CHAPTER_TABLE, RECORD_PAGE = 1, 2, 3, 4
NODE, NAME_PAGE, FOOTER, DICTIONARY_PIECE, SPARE, UNIT_PAGE = 6, 7, 8, 9, 10, 11
PACKET_PAGE, KEY_PAGE, SCHEMA = 12, 13, 14
SECTIONS = {DICTIONARY: "dictionary", DICTIONARY_PIECE: "dictionary piece", MODEL: "model", SPARE: "spare",
            CHAPTER_TABLE: "chapter table", RECORD_PAGE: "record page", NODE: "node",
            NAME_PAGE: "name page", FOOTER: "footer", UNIT_PAGE: "unit page",
            PACKET_PAGE: "packet page", KEY_PAGE: "key page", SCHEMA: "schema"}
NO_NAMES, INCREASING, BY_NAME_PAGES = 0, 1, 2
KINDS = ("data", "file", "directory", "symlink", "hardlink", "fifo", "character-device",
         "block-device", "item")
DATA, FILE, DIRECTORY, SYMLINK, HARDLINK, FIFO, CHARACTER_DEVICE, BLOCK_DEVICE, ITEM = range(9)
LONGEST_BLOCK = LONGEST_PAYLOAD = LONGEST_HASHED = 1 << 26
MOST = 4096  # blocks of a chapter, entries of a node or page
ALL_ONES = (1 << 64) - 1


class FormatError(Exception):
    """The file is damaged, cut, or of a format that this reader does not know."""

    def __init__(self, what: str, position: int):
        super().__init__(f"{what} at byte {position}")
        self.what, self.position = what, position


def require(condition: bool, what: str, position: int) -> None:
    if not condition:
        raise FormatError(what, position)


# Checksums

def crc_table(polynomial: int, width: int) -> list[int]:
    reflected, table = int(f"{polynomial:0{width}b}"[::-1], 2), []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (reflected if value & 1 else 0)
        table.append(value)
    return table


TABLE_32 = crc_table(0x1EDC6F41, 32)
TABLE_64 = crc_table(0xAD93D23594C93659, 64)


def crc32c(data: bytes, before: int = 0) -> int:
    value = before ^ 0xFFFFFFFF
    for byte in data:
        value = TABLE_32[(value ^ byte) & 255] ^ value >> 8
    return value ^ 0xFFFFFFFF


def crc64(data: bytes, before: int = 0) -> int:
    value = before ^ ALL_ONES
    for byte in data:
        value = TABLE_64[(value ^ byte) & 255] ^ value >> 8
    return value ^ ALL_ONES


# Integers and what is made of them

@dataclass
class Cursor:
    """Takes stored fields apart, one after the other."""
    data: bytes
    what: str
    position: int  # of the data in the file
    stored: bool = True  # else it was decompressed, and only its start has a position
    at: int = 0

    def require(self, condition: bool, what: str) -> None:
        if not condition:
            raise FormatError(f"{self.what}: {what}", self.here())

    def here(self) -> int:
        return self.position + (self.at if self.stored else 0)

    def take(self, count: int) -> bytes:
        self.require(count <= len(self.data) - self.at, "ends too early")
        self.at += count
        return self.data[self.at - count:self.at]

    def fixed(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def varint(self) -> int:
        value = shift = 0
        byte = 128
        while byte >= 128:
            self.require(shift < 70, "integer too long")
            byte = self.fixed(1)
            value |= (byte & 127) << shift
            shift += 7
        self.require(value <= ALL_ONES, "integer too large")
        self.require(byte != 0 or shift == 7, "integer longer than it has to be")
        return value

    def signed(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def sized(self) -> bytes:
        return self.take(self.varint())

    def name(self, before: bytes) -> bytes:
        """A name that is told by how it differs from the one before."""
        shared = self.varint()
        self.require(shared <= len(before), "shares more than there is")
        name = before[:shared] + self.sized()
        self.require(len(name) <= 65535 and 0 not in name, "not a name")
        return name

    def part(self, length: int, what: str) -> "Cursor":
        start = self.here()
        return Cursor(self.take(length), f"{self.what}: {what}", start, self.stored)

    def finish(self) -> None:
        self.require(self.at == len(self.data), "longer than what it holds")


def read_elias_fano(cursor: Cursor, count: int) -> list[int]:
    last, low = cursor.varint(), cursor.fixed(1)
    cursor.require(low <= 63, "low bits of a sequence")
    # Taken as one number each: bit 0 of it is the lowest bit of the first byte.
    lows = cursor.fixed((count * low + 7) // 8)
    highs = cursor.fixed((count + (last >> low) + 7) // 8)
    set_bits = [at for at, bit in enumerate(f"{highs:b}"[::-1]) if bit == "1"]
    cursor.require(len(set_bits) == count and lows >> count * low == 0, "bits of a sequence")
    values = [at - index << low | lows >> index * low & (1 << low) - 1
              for index, at in enumerate(set_bits)]
    increase = all(a < b for a, b in zip([0] + values, values))
    cursor.require(increase and values[-1] == last, "order of a sequence")
    return values


# The file and its sections

def read_at(file: BinaryIO, position: int, length: int, limit: int, what: str) -> bytes:
    require(0 <= position and position + length <= limit, what, max(position, 0))
    file.seek(position)
    data = file.read(length)
    require(len(data) == length, what, position)
    return data


def read_header(file: BinaryIO, size: int, kind: int = ARCHIVE_FILE) -> int:
    """The guard, or 0 where it is not set or was not written whole."""
    header = Cursor(read_at(file, 0, HEADER, size, "header"), "header", 0)
    header.require(header.take(8) == MAGIC, "not a fiche file")
    header.require(header.fixed(2) == 1, "version")
    header.fixed(2)  # a larger minor version adds only what may be ignored
    header.require(header.fixed(1) == kind, "kind of file")
    header.require(header.fixed(3) == 0, "reserved bytes")
    header.require(header.fixed(4) == crc32c(header.data[:16]), "checksum")
    guard, checksum = header.fixed(8), header.fixed(4)
    return guard if checksum == crc32c(header.data[20:28]) else 0


@dataclass
class Section:
    position: int
    offset: int
    number: int
    payload: Cursor


def read_section(file: BinaryIO, kind: int, position: int, length: int, limit: int) -> Section:
    require(position >= HEADER and length >= 4, SECTIONS[kind], position)
    data = read_at(file, position, length, limit, SECTIONS[kind])
    section = Cursor(data[:-4], SECTIONS[kind], position)
    checksum = crc32c(section.data, crc32c(position.to_bytes(8, "little")))
    section.require(int.from_bytes(data[-4:], "little") == checksum, "checksum")
    section.require(section.take(4) == MARKER, "marker")
    section.require(section.fixed(1) == kind, "kind of section")
    compressed = section.fixed(1)
    bare = kind in (CHAPTER_TABLE, FOOTER, SPARE, PACKET_PAGE, KEY_PAGE)
    section.require(compressed <= (not bare), "flags")
    offset, number, stored_length = section.varint(), section.varint(), section.varint()
    # Models and footers have one only in files of events.
    has_offset = kind in (CHAPTER_TABLE, RECORD_PAGE, DICTIONARY_PIECE, UNIT_PAGE, PACKET_PAGE,
                          KEY_PAGE, MODEL, FOOTER)
    section.require(offset == 0 or has_offset, "offset")
    section.require(number == 0 or kind != FOOTER, "number")
    decoded_length = section.varint() if compressed else stored_length
    payload = section.part(stored_length, "payload")
    section.finish()
    if compressed:
        section.require(1 <= decoded_length <= LONGEST_PAYLOAD, "length")
        payload.stored = False
        payload.data = decode(decode_zstd, payload.data, decoded_length, payload.what, position)
    return Section(position, offset, number, payload)


def find_footer(file: BinaryIO, size: int, kind: int = FOOTER) -> tuple[Section, int]:
    """The section that a file of that size ends with, and where it starts."""
    position = size - TRAILER
    require(position >= HEADER, "trailer", max(position, 0))
    trailer = Cursor(read_at(file, position, TRAILER, size, "trailer"), "trailer", position)
    start, length = trailer.fixed(8), trailer.fixed(8)
    trailer.require(trailer.fixed(4) == 0, "reserved bytes")
    trailer.require(trailer.fixed(4) == crc32c(trailer.data[:20]), "checksum")
    trailer.require(trailer.take(8) == MAGIC[::-1], "magic")
    trailer.require(start + length == position, "place of the footer")
    return read_section(file, kind, start, length, position), start


# Codecs

def copy_within(out: bytearray, start: int, count: int) -> None:
    if not 0 <= start < len(out):
        raise ValueError("copy from outside")
    # A copy may overlap what it makes: then its first bytes are repeated.
    piece = bytes(out[start:start + count])
    out += (piece * (count // len(piece) + 1))[:count]


def read_lz4(data: bytes, at: int, out: bytearray, length: int) -> int:
    """Adds what a sequence holds; returns where the next one is."""
    def count(value: int) -> int:
        nonlocal at
        more = 255 if value == 15 else 0
        while more == 255:
            more = data[at]
            at += 1
            value += more
        return value

    token = data[at]
    at += 1
    literals = count(token >> 4)
    if literals > len(data) - at:
        raise ValueError("literals beyond the end")
    out += data[at:at + literals]
    at += literals
    if at == len(data):  # the last sequence has no match
        return at
    distance = data[at] | data[at + 1] << 8
    at += 2
    match = count(token & 15) + 4
    if at == len(data) or len(out) + match > length:
        raise ValueError("match beyond the end")
    copy_within(out, len(out) - distance, match)
    return at


def decode_lz4(data: bytes, length: int) -> bytes:
    out, at = bytearray(), 0
    while at == 0 or at < len(data):
        at = read_lz4(data, at, out, length)
    return bytes(out)


def decode_zstd(data: bytes, length: int, dictionary: object = None) -> bytes:
    # Neither checksum nor dictionary number: the flags in the first byte that tell of them.
    if data[0] & 0b1111:
        raise ValueError("flags of the frame")
    frame = zstandard.ZstdDecompressor(
        dict_data=dictionary, format=zstandard.FORMAT_ZSTD1_MAGICLESS).decompressobj()
    decoded, at = bytearray(), 0
    # In small pieces, so that a frame that lies about its length cannot fill the memory.
    while at < len(data) and not frame.eof and len(decoded) <= length:
        decoded += frame.decompress(data[at:at + 1024])
        at += 1024
    if not frame.eof or frame.unused_data or at < len(data):
        raise ValueError("end of the frame")
    return bytes(decoded)


def decode_stream(decoder: object, data: bytes, length: int) -> bytes:
    # One byte more than there should be, so that a stream which is too long is noticed.
    decoded = decoder.decompress(data, length + 1)
    if not decoder.eof or decoder.unused_data:
        raise ValueError("end of the stream")
    return decoded


def decode_deflate(data: bytes, length: int) -> bytes:
    return decode_stream(zlib.decompressobj(wbits=-15), data, length)


def decode_lzma(data: bytes, length: int) -> bytes:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": max(length, 4096)}]
    return decode_stream(lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters), data, length)


def decode_bzip2(data: bytes, length: int) -> bytes:
    return decode_stream(bz2.BZ2Decompressor(), data, length)


def decode_copy(data: bytes, length: int) -> bytes:
    return data  # of another length, or it would not be decoded at all


def decode_bewalgo(unit: int, data: bytes, length: int) -> bytes:
    out, at = bytearray(), 0
    while len(data) - at >= unit:
        word = data[at : at + unit]
        at += unit
        for i in range(0, unit, 4):
            literals, matched, offset = struct.unpack_from("<BBH", word, i)
            if (matched == 0 and offset > 0) or (i == 0 and literals + matched == 0):
                raise ValueError("a control word that says nothing")
            if len(data) - at < literals * unit:
                raise ValueError("end of the stream")
            out += data[at : at + literals * unit]
            at += literals * unit
            start = len(out) - offset * unit
            if matched > 0 and (offset == 0 or start < 0):
                raise ValueError("a match before the content")
            if len(out) + matched * unit > length:
                raise ValueError("length of the content")
            for k in range(matched * unit):
                out.append(out[start + k])
    return bytes(out + data[at:])


def decode_lzo(data: bytes, length: int) -> bytes:
    out, stream = bytearray(), Cursor(data, "LZO stream", 0)

    def more(first: int) -> int:  # what a number of 0 stands for
        count = first
        while (byte := stream.fixed(1)) == 0:
            count += 255
        return count + byte

    nothing_yet, run, literals = True, False, 0
    while True:
        byte, word = stream.fixed(1), None
        if nothing_yet and byte >= 18:
            literals, run = byte - 17, byte > 20
            out += stream.take(literals)
            nothing_yet, literals = False, 0 if run else literals
            continue
        nothing_yet = False
        if byte < 16 and not run and literals == 0:
            out += stream.take(3 + (byte or more(15)))
            run = True
            continue
        if byte < 16:
            count, distance = (3, 2049) if run else (2, 1)
            distance += 4 * stream.fixed(1) + byte // 4
        elif byte < 64:
            short = 8 if byte < 32 else 32
            count = 2 + (byte % short or more(short - 1))
            word = stream.fixed(2)
            distance = word // 4 + (1 if byte >= 32 else 16384 + 2048 * (byte & 8))
            if byte < 32 and distance == 16384:
                stream.require(data[-3:] == b"\x11\0\0", "end")
                stream.finish()
                return bytes(out)
        else:
            count, distance = byte // 32 + 1, 8 * stream.fixed(1) + byte // 4 % 8 + 1
        stream.require(distance <= len(out) and len(out) + count <= length, "copy")
        for _ in range(count):
            out.append(out[-distance])
        run, literals = False, (byte if word is None else word) % 4
        out += stream.take(literals)


DECODERS = (
    decode_copy, decode_lz4, decode_deflate, decode_zstd, decode_lzma, decode_bzip2,
    partial(decode_bewalgo, 4), partial(decode_bewalgo, 8), decode_lzo,
)
UNIT_CODECS = (0, 1, 2, 3, 8)


def decode_filtered(filters: int, decoder: Callable, data: bytes, length: int) -> bytes:
    decoded = decoder(data[filters:], length)
    for filter in reversed(data[:filters]):
        decoded = undo_filter(filter // 64, filter % 64, decoded)
    return decoded


def undo_filter(kind: int, width: int, data: bytes) -> bytes:
    if width == 0 or kind > 2 or (kind == 2 and width not in (1, 2, 4, 8)):
        raise ValueError("no such filter")
    count = len(data) // width
    if kind == 1:
        count -= count % 8
    out = bytearray(data[: count * width])
    if kind == 0:
        for k in range(width):
            out[k::width] = data[k * count : (k + 1) * count]
    elif kind == 1:
        plane = count // 8
        for k in range(width):
            whole = bytearray(count)
            for bit in range(8):
                bits = data[(8 * k + bit) * plane : (8 * k + bit + 1) * plane]
                for i in range(count):
                    whole[i] |= (bits[i // 8] >> i % 8 & 1) << bit
            out[k::width] = whole
    else:
        before = 0
        for i in range(0, count * width, width):
            more = int.from_bytes(data[i : i + width], "little")
            before = (before + more) % (1 << 8 * width)
            out[i : i + width] = before.to_bytes(width, "little")
    return bytes(out + data[count * width :])


def decode(decoder: Callable, data: bytes, length: int, what: str, position: int) -> bytes:
    try:
        decoded = decoder(data, length)
    except (ValueError, IndexError, EOFError, OSError, zlib.error, lzma.LZMAError,
            zstandard.ZstdError) as error:
        raise FormatError(f"{what}: {error}", position) from error
    require(len(decoded) == length, f"{what}: length", position)
    return decoded


# The archive; compared by identity, so that what was read of it can be remembered

@dataclass(eq=False)
class Block:
    number: int
    offset: int
    length: int
    position: int
    stored: int  # without its checksum
    codec: int
    dictionary: int | None
    model: int | None


@dataclass(eq=False)
class Chapter:
    position: int  # of its table
    length: int  # of its table
    floor: int  # where the table before ends: its own blocks cannot start before
    offset: int
    decoded: int
    number: int  # of its first block
    count: int  # of its blocks


@dataclass(frozen=True)
class Entry:
    """What a node, or the footer, tells of a node or page, which has to agree."""
    first: int
    count: int
    position: int
    length: int
    name: bytes | None  # the first one; the footer does not tell it


@dataclass(eq=False)
class Tree:
    """Of records, or of the names of such a tree."""
    level: int
    root: Entry
    found: int = INCREASING
    names: "Tree | None" = None


@dataclass(eq=False)
class Archive:
    file: BinaryIO
    limit: int  # where the footer starts: no other section goes beyond
    length: int
    blocks: int
    records: int
    content: int
    chapters: list[Chapter] = field(default_factory=list)
    trees: list[Tree] = field(default_factory=list)
    superseded: list[tuple[int, int, int]] = field(default_factory=list)
    others: list[tuple[int, int, int]] = field(default_factory=list)


def open_archive(file: BinaryIO) -> Archive:
    footer, limit = find_last_footer(file, ARCHIVE_FILE)
    return read_footer(file, footer, limit)


def find_last_footer(file: BinaryIO, kind: int) -> tuple[Section, int]:
    """That of a file that may have been appended to, and where it starts."""
    size = file.seek(0, 2)
    require(size < 1 << 63, "length of the file", 0)
    guard = read_header(file, size, kind)
    try:
        return find_footer(file, size)
    except FormatError:
        file.seek(-len(MAGIC), 2)
        if not 0 < guard < size or file.read() == MAGIC[::-1]:
            raise
        # An append was cut off: the file is what it was before.
        return find_footer(file, guard)


def read_footer(file: BinaryIO, last: Section, limit: int) -> Archive:
    footers = [last]
    while position := footers[-1].payload.varint():
        length = footers[-1].payload.varint()
        footers[-1].payload.require(
            position + length <= footers[-1].position and len(footers) < 64, "footer before")
        footers.append(read_section(file, FOOTER, position, length, limit))
    archive = Archive(file, limit, 0, 0, 0, 0)
    for footer in reversed(footers):
        footer.payload.require(footer.offset == 0, "offset")
        extend_footer(archive, footer.payload, limit)
    return archive


def extend_footer(archive: Archive, footer: Cursor, limit: int) -> None:
    """Adds what one footer says to what the footers that it continues said."""
    archive.length, archive.blocks, archive.records, archive.content = (
        footer.varint(), footer.varint(), footer.varint(), footer.fixed(8))
    end, offset, number = HEADER, 0, 0
    if archive.chapters:
        last = archive.chapters[-1]
        end, offset, number = (
            last.position + last.length, last.offset + last.decoded, last.number + last.count)
    for _ in range(footer.varint()):
        gap, length, decoded, count = (footer.varint() for _ in range(4))
        footer.require(end + gap + length <= limit, "place of a chapter table")
        footer.require(count <= MOST, "blocks of a chapter")
        archive.chapters.append(Chapter(end + gap, length, end, offset, decoded, number, count))
        end += gap + length
        offset += decoded
        number += count
    footer.require((offset, number) == (archive.length, archive.blocks), "sum of the chapters")
    first = sum(tree.root.count for tree in archive.trees)
    for _ in range(footer.varint()):
        tree = read_tree(footer, first, limit)
        tree.found = footer.fixed(1)
        footer.require(tree.found <= BY_NAME_PAGES, "how names are found")
        if tree.found == BY_NAME_PAGES:
            tree.names = read_tree(footer, 0, limit)
            footer.require(tree.names.root.count <= 2 * tree.root.count, "count of names")
        first += tree.root.count
        archive.trees.append(tree)
    footer.require(first == archive.records, "sum of the trees")
    end = HEADER
    for _ in range(footer.varint()):
        position, length, checksum = footer.varint(), footer.varint(), footer.fixed(4)
        footer.require(end <= position <= position + length <= limit, "superseded range")
        archive.superseded.append((position, length, checksum))
        end = position + length
    for _ in range(footer.varint()):
        kind, position, length = footer.fixed(1), footer.varint(), footer.varint()
        footer.require(kind >= 128 or kind in (DICTIONARY, MODEL, SPARE), "kind of another section")
        footer.require(position + length <= limit, "place of another section")
        archive.others.append((kind, position, length))
    footer.require(footer.varint() == 0, "other files")
    for _ in range(2 * footer.varint()):
        footer.sized()  # a key or value of a note, which is for people
    footer.finish()


def read_tree(footer: Cursor, first: int, limit: int) -> Tree:
    count, level, position, length = (
        footer.varint(), footer.fixed(1), footer.varint(), footer.varint())
    footer.require(count >= 1 and level <= 7 and position + length <= limit, "tree")
    return Tree(level, Entry(first, count, position, length, None))


# Content

def read_lengths(table: Cursor, count: int) -> list[int]:
    tag = table.varint()
    if tag == 0:
        ends = read_elias_fano(table, count)
        lengths = [end - start for start, end in zip([0] + ends, ends)]
    else:
        lengths = [tag >> 1] * count
        if tag & 1:
            lengths[-1] = table.varint()
            table.require(lengths[-1] < tag >> 1, "length of the last block")
    table.require(1 <= min(lengths), "length of a block")
    return lengths


@lru_cache(64)
def read_chapter_table(archive: Archive, chapter: Chapter) -> list[Block]:
    """The blocks of a chapter."""
    section = read_section(
        archive.file, CHAPTER_TABLE, chapter.position, chapter.length, archive.limit)
    table = section.payload
    table.require((section.offset, section.number) == (chapter.offset, chapter.number), "place")
    back = table.varint()
    table.require(back <= chapter.position - chapter.floor, "blocks before their chapter")
    position, offset = chapter.position - back, chapter.offset
    blocks: list[Block] = []
    for _ in range(table.varint()):
        count = table.varint()
        table.require(1 <= count <= chapter.count - len(blocks), "count of blocks")
        codec, flags = table.fixed(1), table.fixed(1)
        table.require(codec % 64 < len(DECODERS) or codec in CODINGS, "codec")
        # Parts have a flag, but there is none to refer to.
        table.require(flags & ~6 == 0, "flags of a run")
        dictionary = table.varint() if flags & 2 else None
        model = table.varint() if flags & 4 else None
        for place in filter(None, (dictionary, model)):
            table.require(place < len(archive.others), "place of a dictionary")
        for length, stored in zip(read_lengths(table, count), read_lengths(table, count)):
            table.require(length <= LONGEST_BLOCK, "length of a block")
            table.require(stored <= length, "stored length of a block")
            number = chapter.number + len(blocks)
            blocks.append(
                Block(number, offset, length, position, stored, codec, dictionary, model))
            offset += length
            position += stored + CHECKSUM
    table.require(len(blocks) == chapter.count, "count of blocks")
    table.require(offset == chapter.offset + chapter.decoded, "decoded bytes of the chapter")
    # Sections between blocks move all that is behind them.
    at, first = 0, True
    while table.at < len(table.data):
        since, gap = table.varint(), table.varint()
        at += since
        table.require((since > 0 or first) and gap > 0 and at < len(blocks), "gap between blocks")
        for block in blocks[at:]:
            block.position += gap
        position, first = position + gap, False
    table.require(position <= chapter.position, "blocks behind their table")
    return blocks


# What blocks share

@lru_cache(8)
def read_description(archive: Archive, place: int) -> tuple[bytes, int, str, list, int]:
    """Digest, length and name of a dictionary, its pieces, and where its section lies."""
    kind, position, length = archive.others[place]
    require(kind == DICTIONARY, "dictionary", position)
    section = read_section(archive.file, DICTIONARY, position, length, archive.limit)
    section.payload.require(section.number == place, "number")
    return parse_description(section)


def parse_description(section: Section) -> tuple[bytes, int, str, list, int]:
    payload, position = section.payload, section.position
    digest, length, name = payload.take(32), payload.varint(), payload.sized().decode()
    count = payload.varint()
    payload.require(length <= 1 << 30, "length")
    payload.require(count <= length and (count == 0) == bool(name or length == 0), "count of pieces")
    lengths = [payload.varint() for _ in range(count)]
    payload.finish()
    start, pieces = position - sum(lengths), []
    for length_of_piece in lengths:
        pieces.append((start, length_of_piece))
        start += length_of_piece
    return digest, length, name, pieces, position


def join_pieces(file: BinaryIO, description: tuple) -> bytes:
    digest, length, _, pieces, position = description
    whole = bytearray()
    for number, (start, stored) in enumerate(pieces):
        piece = read_section(file, DICTIONARY_PIECE, start, stored, position)
        piece.payload.require((piece.offset, piece.number) == (len(whole), number), "place")
        piece.payload.require(1 <= len(piece.payload.data) <= length - len(whole), "length")
        whole += piece.payload.data
    require(blake3.blake3(bytes(whole)).digest() == digest, "dictionary: digest", position)
    return bytes(whole)


@lru_cache(8)
def read_dictionary(archive: Archive, place: int) -> bytes:
    description = read_description(archive, place)
    digest, _, name, _, position = description
    if not name:
        return join_pieces(archive.file, description)
    require("/" not in name and name != "..", "name of a dictionary", position)
    path = Path(archive.file.name).parent / name
    require(path.is_file(), "missing dictionary", position)
    with path.open("rb") as file:
        size = file.seek(0, 2)
        read_header(file, size, DICTIONARY_FILE)
        section, _ = find_footer(file, size, DICTIONARY)
        described = parse_description(section)
        require(described[0] == digest and not described[2], "missing dictionary", position)
        return join_pieces(file, described)


def read_code(cursor: Cursor, symbols: int) -> dict[tuple[int, int], int]:
    """The symbol of each codeword: its length, and its bits, the first the highest."""
    lengths: list[int] = []
    while len(lengths) < symbols:
        run = cursor.fixed(1)
        lengths += [run & 15] * ((run >> 4) + 1)
    cursor.require(len(lengths) == symbols and max(lengths) <= 14, "code")
    cursor.require(sum(1 << 14 - n for n in lengths if n) == 1 << 14, "code")
    code, word, last = {}, 0, 0
    for length, symbol in sorted((n, symbol) for symbol, n in enumerate(lengths) if n):
        word <<= length - last
        code[length, word], word, last = symbol, word + 1, length
    return code


def read_classes(cursor: Cursor) -> list[tuple]:
    """Classes of blocks: codes of commands, of match lengths, of literals; codes behind bytes."""
    classes = []
    count = cursor.varint()
    cursor.require(1 <= count <= 16, "classes")
    for _ in range(count):
        commands = read_code(cursor, 512)
        lengths = [read_code(cursor, 32) for _ in range(5)]
        contexts = cursor.varint()
        cursor.require(1 <= contexts <= 4, "contexts")
        literals = [read_code(cursor, 256) for _ in range(contexts)]
        behind = [0] * 256
        if contexts > 1:
            behind = [byte >> 2 * i & 3 for byte in cursor.take(64) for i in range(4)]
        cursor.require(max(behind) < contexts, "context")
        cursor.require(all(symbol % 16 < 12 for symbol in commands.values()), "command")
        cursor.require(all(symbol < 29 for code in lengths for symbol in code.values()), "length")
        classes.append((commands, lengths, literals, behind))
    return classes


def read_tokens(payload: Cursor) -> list[tuple[int, int, int]]:
    """Literals, length and kind of each token."""
    literals, lengths, kinds = payload.take(256), payload.take(256), payload.fixed(64)
    tokens = [(literals[at], lengths[at], kinds >> 2 * at & 3) for at in range(256)]
    for run, match, kind in tokens:
        payload.require((kind == 0) == (match == 0) and run + match > 0, "token")
    return tokens


@lru_cache(8)
def read_model(archive: Archive, place: int) -> tuple[bytes, object]:
    """The digest of a model, and what is before streams of lengths and of offsets, or classes, or tokens."""
    kind, position, length = archive.others[place]
    require(kind == MODEL, "model", position)
    section = read_section(archive.file, MODEL, position, length, archive.limit)
    payload = section.payload
    payload.require((section.offset, section.number) == (0, place), "place")
    digest = blake3.blake3(payload.data).digest()
    coding = payload.fixed(1)
    payload.require(coding in (20, 23, 24), "coding")
    if coding == 20:
        model = payload.sized(), payload.sized()
    else:
        model = read_classes(payload) if coding == 23 else read_tokens(payload)
    payload.finish()
    return digest, model


def block_mark(archive: Archive, block: Block) -> int:
    if block.dictionary is None:
        return block.codec
    tag = read_description(archive, block.dictionary)[0][:2]
    if block.model is not None:
        tag = bytes(a ^ b for a, b in zip(tag, read_model(archive, block.model)[0]))
    return block.codec + 256 * int.from_bytes(tag, "little")


def copy_factors(factors: Iterator[tuple[int, int]], length: int, dictionary: bytes) -> bytes:
    """Length 0 is a literal, whose offset is its byte."""
    out = bytearray()
    for count, offset in factors:
        if count == 0:
            out.append(offset)
        elif offset + count > len(dictionary) or len(out) + count > length:
            raise ValueError("factor outside of the dictionary or the block")
        else:
            out += dictionary[offset:offset + count]
    return bytes(out)


def read_stream(cursor: Cursor, before: bytes | None = None) -> bytes:
    length = cursor.varint()
    stored = cursor.sized()
    cursor.require(length <= LONGEST_BLOCK * 10, "length of a stream")
    if len(stored) == length:
        return stored
    inflate = zlib.decompressobj(wbits=-15, **({"zdict": before} if before else {}))
    stream = decode_stream(inflate, stored, length)
    cursor.require(len(stream) == length, "length of a stream")
    return stream


def words(data: bytes) -> list[int]:
    return [int.from_bytes(data[at:at + 4], "little") for at in range(0, len(data), 4)]


def decode_uv(data: bytes, length: int, dictionary: bytes, model: object) -> bytes:
    cursor = Cursor(data, "factors", 0)
    lengths = [cursor.varint() for _ in range(cursor.varint())]
    offsets = words(cursor.take(4 * len(lengths)))
    cursor.finish()
    return copy_factors(zip(lengths, offsets), length, dictionary)


def decode_pv(data: bytes, length: int, dictionary: bytes, model: object) -> bytes:
    cursor = Cursor(data, "factors", 0)
    lengths = [cursor.varint() for _ in range(cursor.varint())]
    bits = max((len(dictionary) - 1).bit_length() if dictionary else 0, 8)
    packed = cursor.fixed((bits * len(lengths) + 7) // 8)
    cursor.finish()
    offsets = [packed >> bits * at & (1 << bits) - 1 for at in range(len(lengths))]
    return copy_factors(zip(lengths, offsets), length, dictionary)


def decode_zz(data: bytes, length: int, dictionary: bytes, model: tuple | None) -> bytes:
    cursor = Cursor(data, "factors", 0)
    count, before = cursor.varint(), model or (None, None)
    stream = Cursor(read_stream(cursor, before[0]), "lengths", 0, False)
    lengths = [stream.varint() for _ in range(count)]
    stream.finish()
    offsets = words(read_stream(cursor, before[1]))
    cursor.finish()
    cursor.require(len(offsets) == count, "count of offsets")
    return copy_factors(zip(lengths, offsets), length, dictionary)


def decode_zzz(data: bytes, length: int, dictionary: bytes, model: object) -> bytes:
    cursor = Cursor(data, "factors", 0)
    least = cursor.varint()
    lengths = Cursor(read_stream(cursor), "lengths", 0, False)
    offsets, literals = iter(words(read_stream(cursor))), Cursor(read_stream(cursor), "literals", 0)
    cursor.finish()
    out = bytearray()
    while lengths.at < len(lengths.data):
        count = lengths.varint()
        if count >= least:
            out += copy_factors([(count, next(offsets, -count))], length, dictionary)
        else:
            out += literals.take(count or lengths.varint())
    literals.finish()
    cursor.require(next(offsets, None) is None, "count of offsets")
    return bytes(out)


def decode_zlib_primed(data: bytes, length: int, dictionary: bytes, model: object) -> bytes:
    cursor = Cursor(data, "block", 0)
    start = 1024 * cursor.varint()
    cursor.require(start <= len(dictionary), "region")
    before = dictionary[start:start + (32 << 10)]
    inflate = zlib.decompressobj(wbits=-15, **({"zdict": before} if before else {}))
    return decode_stream(inflate, cursor.data[cursor.at:], length)


def decode_zstd_dict(data: bytes, length: int, dictionary: bytes, model: object) -> bytes:
    return decode_zstd(data, length, zstandard.ZstdCompressionDict(
        dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT) if dictionary else None)


class Bits:
    """Bits of some bytes, the lowest first."""

    def __init__(self, data: bytes):
        self.word, self.left = int.from_bytes(data, "little"), 8 * len(data)

    def take(self, count: int) -> int:
        if count > self.left:
            raise ValueError("too few bits")
        value, self.word, self.left = self.word & (1 << count) - 1, self.word >> count, self.left - count
        return value

    def symbol(self, code: dict[tuple[int, int], int]) -> int:
        word = length = 0
        while (length, word) not in code:
            word, length = word << 1 | self.take(1), length + 1
        return code[length, word]


LITERALS = [(n, 0) for n in range(8)] + [(8, 3), (16, 4), (32, 5), (64, 13)]
LENGTHS = [(n + 2, 0) for n in range(16)] + [
    (18, 2), (22, 2), (26, 3), (34, 3), (42, 3), (50, 4), (66, 5), (98, 5), (130, 7), (258, 8),
    (514, 9), (1026, 14), (0, 0)]


def decode_hybrid(data: bytes, length: int, dictionary: bytes, model: list[tuple]) -> bytes:
    cursor = Cursor(data, "block", 0)
    head = cursor.fixed(1)
    cursor.require(head & 0x70 == 0 and head & 15 < len(model), "class")
    commands_code, length_codes, literal_codes, behind = model[head & 15]
    count, literal_count = cursor.varint(), cursor.varint()
    sizes = [cursor.varint()]
    if head >> 7:
        sizes.append(literal_count)
    elif literal_count:
        sizes += [cursor.varint() for _ in range(2 if literal_count >= 256 else 1)]
    fields = [cursor.take(size) for size in sizes]
    extra = Bits(cursor.data[cursor.at:])
    wide = max((len(dictionary) - 1).bit_length() if dictionary else 0, 8)
    forward, backward = Bits(fields[0]), Bits(fields[0][::-1])
    literals = fields[1] if head >> 7 else b""
    if not head >> 7 and literal_count:
        streams = 2 * (len(fields) - 1)
        chunk = -(-literal_count // streams)
        for stream in range(streams):
            field = fields[1 + stream // 2]
            bits, before = Bits(field[::-1] if stream % 2 else field), 0
            for _ in range(max(0, min(chunk, literal_count - stream * chunk))):
                before = bits.symbol(literal_codes[behind[before]])
                literals += bytes([before])
    out, at, distances = bytearray(dictionary), 0, [4, 3, 2, 1]
    for _ in range(count):
        command = forward.symbol(commands_code)
        source = command >> 4
        group = [0, 1, 1, 1][source] if source < 4 else 2 if source < 10 else 3 if source < 24 else 4
        symbol = backward.symbol(length_codes[group])
        if source < 4:
            value = distances[-1 - source]
        elif source < 24:
            value = (1 << source - 4) + extra.take(source - 4)
        elif source == 24:
            value = extra.take(wide - 7)
        else:
            value = (1 << wide + source - 32) + extra.take(wide + source - 32)
        first, bits = LITERALS[command & 15]
        run = first + extra.take(bits)
        first, bits = LENGTHS[symbol]
        match = first + extra.take(bits)
        out += literals[at:at + run]
        at += run
        distances.append(value if source < 24 else len(out) - value)
        start = len(out) - distances[-1]
        if not 0 <= start < len(out) or start < len(dictionary) < start + match or at > literal_count:
            raise ValueError("match outside of the dictionary or the block")
        for place in range(start, start + match):
            out.append(out[place])
    if extra.left >= 8 or extra.word:
        raise ValueError("extra bits")
    return bytes(out[len(dictionary):]) + literals[at:]


def decode_fast(data: bytes, length: int, dictionary: bytes, model: list[tuple]) -> bytes:
    cursor = Cursor(data, "block", 0)
    count, size = cursor.varint(), cursor.varint()
    rest = cursor.data[cursor.at:]
    cursor.require(count + size <= len(rest), "sizes")
    at_tokens = len(rest) - count
    literals, at = rest[:at_tokens - size], 0
    offsets = Cursor(rest[at_tokens - size:at_tokens], "offsets", 0)
    out, distance = bytearray(dictionary), 1
    for run, match, kind in (model[token] for token in rest[at_tokens:]):
        cursor.require(at + run <= len(literals), "literals")
        out += literals[at:at + run]
        at += run
        if kind == 2:
            distance = offsets.fixed(2)
        elif kind == 3:
            distance = len(out) - offsets.fixed(4 if len(dictionary) > 1 << 24 else 3)
        start = len(out) - distance
        if match and (not 0 <= start < len(out) or start < len(dictionary) < start + match):
            raise ValueError("match outside of the dictionary or the block")
        for place in range(start, start + match):
            out.append(out[place])
    offsets.finish()
    cursor.require(at == len(literals), "literals")
    return bytes(out[len(dictionary):])


CODINGS = {16: decode_uv, 17: decode_pv, 18: decode_zz, 19: decode_zzz, 20: decode_zz,
           21: decode_zlib_primed, 22: decode_zstd_dict, 23: decode_hybrid, 24: decode_fast}


@lru_cache(2)
def read_block(archive: Archive, block: Block) -> bytes:
    what = f"block {block.number}"
    data = read_at(archive.file, block.position, block.stored + CHECKSUM, archive.limit, what)
    data, checksum = data[:-CHECKSUM], int.from_bytes(data[-CHECKSUM:], "little")
    is_raw = block.stored == block.length
    mark = 0 if is_raw else block_mark(archive, block)
    expected = (crc32c(data) + BLOCK_CHECKSUM + mark) % (1 << 32)
    require(checksum == expected, f"{what}: checksum", block.position)
    if is_raw:
        return data
    if block.codec in CODINGS:
        require(block.dictionary is not None, f"{what}: dictionary", block.position)
        dictionary = read_dictionary(archive, block.dictionary)
        model = None if block.model is None else read_model(archive, block.model)[1]
        coding = CODINGS[block.codec]
        return decode(lambda data, length: coding(data, length, dictionary, model),
                      data, block.length, what, block.position)
    filters, decoder = block.codec // 64, DECODERS[block.codec % 64]
    return decode(lambda data, length: decode_filtered(filters, decoder, data, length),
                  data, block.length, what, block.position)


def read_content(archive: Archive, start: int, end: int) -> Iterator[bytes]:
    """Any range of the content; decodes only the blocks that hold some of it."""
    while start < end:
        # Chapters without content share their offset with the next: the last one is meant.
        index = bisect_right(archive.chapters, start, key=lambda chapter: chapter.offset) - 1
        blocks = read_chapter_table(archive, archive.chapters[index])
        block = blocks[bisect_right(blocks, start, key=lambda block: block.offset) - 1]
        piece = read_block(archive, block)[start - block.offset:end - block.offset]
        yield piece
        start += len(piece)


def check_content(archive: Archive) -> str:
    """Compares all that is decoded with its checksums; gives its SHA-256."""
    whole, digest = 0, hashlib.sha256()
    for chapter in archive.chapters:
        for block in read_chapter_table(archive, chapter):
            data = read_block(archive, block)
            whole = crc64(data, whole)
            digest.update(data)
    require(whole == archive.content, "content", archive.limit)
    for place, (kind, position, length) in enumerate(archive.others):
        if kind == SPARE:
            check_spare(archive, read_section(archive.file, SPARE, position, length, archive.limit))
    for position, length, checksum in archive.superseded:
        data = read_at(archive.file, position, length, archive.limit, "superseded range")
        require(crc32c(data) == checksum, "superseded range: checksum", position)
    return digest.hexdigest()


def check_spare(archive: Archive, section: Section) -> None:
    """Nothing is mended here, but it has to be right."""
    payload = section.payload
    back, chunk = payload.varint(), payload.varint()
    wanted = [payload.take(chunk), payload.take(chunk)]
    payload.finish()
    start = section.position - back
    data = read_at(archive.file, start, back, archive.limit, "spare")
    found = [0, 0]
    for index, at in enumerate(range(0, back, chunk)):
        found[index % 2] ^= int.from_bytes(data[at:at + chunk], "little")
    payload.require(found == [int.from_bytes(even, "little") for even in wanted], "sums")


# Records

@dataclass
class Metadata:
    mode: int
    seconds: int
    nanoseconds: int
    user: int
    group: int
    attributes: list[tuple[bytes, bytes]]


@dataclass
class Record:
    number: int
    name: bytes
    kind: int
    start: int  # of its content in the archive
    length: int  # with holes
    pieces: list[tuple[int, int]] | None  # where its data stand, if it is sparse
    target: bytes | int | tuple[int, int] | None
    metadata: Metadata | None
    key: bytes


def read_columns(page: Cursor) -> dict[int, Cursor]:
    columns: dict[int, Cursor] = {}
    last = 0
    while page.at < len(page.data):
        number = page.fixed(1)
        page.require(number > last, "order of columns")
        page.require(number <= 13 or number >= 128, "unknown column")
        columns[number] = page.part(page.varint(), f"column {number}")
        last = number
    return columns


@lru_cache(256)
def read_record_page(archive: Archive, entry: Entry) -> list[Record]:
    section = read_section(archive.file, RECORD_PAGE, entry.position, entry.length, archive.limit)
    page = section.payload
    count = page.varint()
    page.require(1 <= count <= MOST and count == entry.count, "count of records")
    page.require(section.number == entry.first, "number of the first record")
    columns = read_columns(page)

    def value(column: int, read: Callable = Cursor.varint):
        # A column that was left out reads as zeros; no value of zeros has more than two.
        return read(columns.get(column) or Cursor(bytes(2), page.what, page.position))

    records: list[Record] = []
    name, furthest, seconds, user, group = b"", section.offset, 0, 0, 0
    for number in range(entry.first, entry.first + count):
        name = value(1, lambda column: column.name(name))
        kind = value(2, lambda column: column.fixed(1))
        page.require(kind < len(KINDS), f"kind of record {number}")
        start, length = furthest + value(3, Cursor.signed), value(4)
        end = start + length
        page.require(0 <= start <= end <= archive.length, f"place of record {number}")
        furthest = max(furthest, end)
        pieces, length = value(5, lambda column: read_extents(column, length))
        page.require(kind in (DATA, FILE, ITEM) or end == start, f"content of record {number}")
        page.require(kind in (DATA, FILE) or pieces is None, f"pieces of record {number}")
        target = value(6, lambda column: read_target(column, kind, number))
        mode = value(7)
        # Times wrap around, as their differences may need 65 bits.
        seconds = (seconds + value(8, Cursor.signed) + (1 << 63) & ALL_ONES) - (1 << 63)
        nanoseconds = value(9)
        user, group = user + value(10, Cursor.signed), group + value(11, Cursor.signed)
        attributes = value(12, read_attributes)
        page.require(mode <= 1 + 0o7777 and nanoseconds <= 999_999_999
                     and 0 <= user <= ALL_ONES and 0 <= group <= ALL_ONES
                     and (mode or not (seconds or nanoseconds or user or group or attributes)),
                     f"metadata of record {number}")
        key = value(13, Cursor.sized) if kind == ITEM else b""
        page.require(len(key) < 1 << 16 and 0 not in key, f"second name of record {number}")
        metadata = Metadata(mode - 1, seconds, nanoseconds, user, group, attributes)
        records.append(Record(number, name, kind, start, length, pieces, target,
                              metadata if mode else None, key))
    for number, column in columns.items():
        if number <= 13:
            column.finish()
    page.require(entry.name in (None, records[0].name), "first name")
    return records


def read_extents(column: Cursor, stored: int) -> tuple[list[tuple[int, int]] | None, int]:
    """The pieces of a sparse file and its length with holes, from the length of its data."""
    count = column.varint()
    if count == 0:
        return None, stored
    length, pieces, end = column.varint(), [], 0
    for _ in range(count - 1):
        start = end + column.varint()
        end = start + column.varint()
        pieces.append((start, end))
    column.require(end <= length, "pieces behind the end of the file")
    column.require(sum(end - start for start, end in pieces) == stored, "length of the pieces")
    return pieces, length


def read_target(column: Cursor, kind: int, number: int) -> bytes | int | tuple[int, int] | None:
    if kind == SYMLINK:
        return column.sized()
    if kind == HARDLINK:
        back = column.varint()
        column.require(1 <= back <= number, "target of a hard link")
        return number - back
    if kind in (CHARACTER_DEVICE, BLOCK_DEVICE):
        return column.varint(), column.varint()
    return None


def read_attributes(column: Cursor) -> list[tuple[bytes, bytes]]:
    return [(column.sized(), column.sized()) for _ in range(column.varint())]


# Trees

@lru_cache(256)
def read_name_page(archive: Archive, tree: Tree, entry: Entry) -> list[tuple[bytes, int]]:
    """Beginnings of names of this tree of records, each with the number of its record."""
    section = read_section(archive.file, NAME_PAGE, entry.position, entry.length, archive.limit)
    page = section.payload
    count = page.varint()
    page.require(1 <= count <= MOST and count == entry.count, "count of names")
    page.require(section.number == entry.first, "number of the first name")
    names, numbers = [b""], [0]
    for _ in range(count):
        names.append(page.name(names[-1]))
        page.require(names[-2] <= names[-1] != b"", "order of names")
    for _ in range(count):
        numbers.append(numbers[-1] + page.signed())
        page.require(0 <= numbers[-1] < tree.root.count, "number of a record")
    page.finish()
    page.require(entry.name in (None, names[1]), "first name")
    return [(name, tree.root.first + number) for name, number in zip(names[1:], numbers[1:])]


@lru_cache(256)
def read_node(archive: Archive, tree: Tree, entry: Entry, level: int) -> list[Entry]:
    section = read_section(archive.file, NODE, entry.position, entry.length, archive.limit)
    node = section.payload
    node.require(section.number == entry.first, "number of the first below")
    node.require(node.fixed(1) == level, "level")
    count = node.varint()
    node.require(1 <= count <= MOST, "count of entries")
    entries: list[Entry] = []
    first, end, name = entry.first, 0, b""
    for index in range(count):
        below, position, length = node.varint(), end + node.signed(), node.varint()
        before, name = name, node.name(name)
        node.require(below >= 1, "count below an entry")
        node.require(HEADER <= position <= position + length <= archive.limit, "place below")
        node.require(index == 0 or tree.found != INCREASING or before <= name, "order of names")
        entries.append(Entry(first, below, position, length, name))
        first += below
        end = position + length
    node.finish()
    node.require(first == entry.first + entry.count, "sum of the entries")
    node.require(entry.name in (None, entries[0].name), "first name")
    return entries


def find_page(archive: Archive, tree: Tree, key: Callable, wanted: object) -> Entry | None:
    """Goes down to the one page that may hold what is looked for."""
    entry = tree.root
    for level in range(tree.level, 0, -1):
        entries = read_node(archive, tree, entry, level)
        index = bisect_right(entries, wanted, key=key) - 1
        if index < 0:
            return None
        entry = entries[index]
    return entry


def all_pages(archive: Archive, tree: Tree) -> Iterator[Entry]:
    def below(entry: Entry, level: int) -> Iterator[Entry]:
        if level == 0:
            yield entry
            return
        for child in read_node(archive, tree, entry, level):
            yield from below(child, level - 1)
    return below(tree.root, tree.level)


def record_by_number(archive: Archive, number: int) -> Record:
    index = bisect_right(archive.trees, number, key=lambda tree: tree.root.first) - 1
    entry = find_page(archive, archive.trees[index], lambda entry: entry.first, number)
    return read_record_page(archive, entry)[number - entry.first]


@lru_cache(16)
def all_names(archive: Archive, tree: Tree) -> list[tuple[bytes, int]]:
    """The beginnings of all names of a tree of records, with the numbers of their records."""
    pages = (read_name_page(archive, tree, entry) for entry in all_pages(archive, tree.names))
    return [item for page in pages for item in page]


def record_by_name(archive: Archive, name: bytes) -> Record | None:
    for tree in reversed(archive.trees):
        if tree.found == NO_NAMES or name == b"":
            continue
        if tree.found == INCREASING:
            entry = find_page(archive, tree, lambda entry: entry.name, name)
            page = read_record_page(archive, entry) if entry else []
            found = [record for record in page if record.name == name]
        else:
            names = all_names(archive, tree)
            index = bisect_right(names, name, key=lambda item: item[0]) - 1
            beginning = names[index][0] if index >= 0 else None
            while index > 0 and names[index - 1][0] == beginning:
                index -= 1  # equal names: the first counts
            found = [record_by_number(archive, names[index][1])] if index >= 0 else []
            found = [record for record in found if name in (record.name, record.key)]
        if found:
            return found[0]
    return None


def shared(first: bytes, second: bytes) -> int:
    return next((i for i, (a, b) in enumerate(zip(first, second)) if a != b),
                min(len(first), len(second)))


def beginnings(names: list[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
    """Of each of these sorted names as much as tells it from those before and after it."""
    common = [0, *(shared(a, b) for (a, _), (b, _) in zip(names, names[1:])), 0]
    return [(name[:max(common[i], common[i + 1]) + 1], number)
            for i, (name, number) in enumerate(names)]


def all_records(archive: Archive) -> Iterator[Record]:
    """All records in order; makes sure on the way that each can be found by its name."""
    known: set[bytes] = set()
    for tree in archive.trees:
        before, names = None, []
        for entry in all_pages(archive, tree):
            for record in read_record_page(archive, entry):
                fine = record.kind == ITEM or record.name not in known
                if tree.found == NO_NAMES:
                    fine = record.name == b""
                elif tree.found == INCREASING:
                    fine = fine and (before is None or before < record.name)
                require(fine, f"name of record {record.number}", entry.position)
                before = record.name
                if record.name and record.kind != ITEM:
                    known.add(record.name)
                names += [(name, record.number) for name in (record.name, record.key) if name]
                yield record
        if tree.names:
            require(all_names(archive, tree) == beginnings(sorted(names)), "names",
                    tree.names.root.position)


def read_record(archive: Archive, record: Record, start: int, end: int) -> Iterator[bytes]:
    """Any range of what a record holds, its holes read as zeros."""
    pieces = [(0, record.length)] if record.pieces is None else record.pieces
    stored = record.start
    for begin, stop in [*pieces, (record.length, record.length)]:
        while start < min(begin, end):
            zeros = min(begin - start, end - start, 1 << 20)
            yield bytes(zeros)
            start += zeros
        if start < min(stop, end):
            yield from read_content(archive, stored + start - begin,
                                    stored + min(stop, end) - begin)
            start = min(stop, end)
        stored += stop - begin


# Indexes of gzip and lz4 files

GZIP, LZ4_FILE, INSIDE, ALL_LINES = 1, 4, 1, 2
STARTS, STORED_CHECKSUMS, CONTENT_CHECKSUMS, LINES = 1, 2, 4, 8
LONGEST_WINDOW, LONGEST_PIECE = 32768, 65510
MEMBER_AROUND, LAST_MEMBER = 26, 38  # of a member that holds a piece of an index; the one behind


@dataclass(frozen=True)
class Start:
    bits: int = 0  # of the header of the block that the unit begins in
    header: int = 0
    window: bytes = b""


@dataclass(frozen=True)
class Unit:
    offset: int
    length: int
    first: int  # bit of the stream
    end: int  # bit of the stream
    start: Start
    stored: int | None  # checksum
    content: int | None  # checksum
    lines: int | None  # line feeds


@dataclass(frozen=True)
class UnitPage:
    """What the footer tells of a page."""
    offset: int
    length: int  # of the content
    number: int  # of its first unit
    count: int
    lines: int
    position: int
    stored: int


def read_carrier(data: bytes, position: int) -> tuple[bytes, int]:
    """The piece of an index that a member without content holds, and where that ends."""
    member = Cursor(data[position:position + 12 + (1 << 16)], "member of the index", position)
    member.require(member.take(4) == bytes.fromhex("1F 8B 08 04"), "header")
    member.take(6)  # time and system, of which nothing is said
    extra = member.part(member.fixed(2), "extra field")
    extra.require(extra.take(2) == b"FI", "name of the subfield")
    piece = extra.take(extra.fixed(2))
    extra.finish()
    member.require(member.take(10) == bytes.fromhex("03 00") + bytes(8), "content")
    return piece, position + member.at


def split_file(data: bytes) -> tuple[bytes, bytes]:
    """The stream of a gzip file and the index at its end."""
    require(len(data) >= LAST_MEMBER, "no index", 0)
    last, end = read_carrier(data, len(data) - LAST_MEMBER)
    length = int.from_bytes(last[:8], "little")
    checksum = crc32c(last[:8]).to_bytes(4, "little")
    require(end == len(data) and last[8:] == checksum, "length of the index", end - LAST_MEMBER)
    position = end - LAST_MEMBER - length - MEMBER_AROUND * -(-length // LONGEST_PIECE)
    require(position >= 0, "length of the index", end - LAST_MEMBER)
    stream, index = data[:position], b""
    while len(index) < length:
        piece, after = read_carrier(data, position)
        wanted = min(length - len(index), LONGEST_PIECE)
        require(len(piece) == wanted, "length of a piece of the index", position)
        index, position = index + piece, after
    return stream, index


def read_frame(data: bytes, position: int) -> tuple[bytes, int]:
    """What a frame holds that lz4 passes over, and where it ends."""
    frame = Cursor(data[position:], "frame of the index", position)
    frame.require(frame.fixed(4) == 0x184D2A5F, "magic number")
    piece = frame.take(frame.fixed(4))
    return piece, position + frame.at


def split_lz4(data: bytes) -> tuple[bytes, bytes]:
    """The frame of an lz4 file and the index behind it, which is shorter than 2^31 bytes."""
    require(len(data) >= 28, "no index", 0)
    last, end = read_frame(data, len(data) - 20)
    length = int.from_bytes(last[:8], "little")
    checksum = crc32c(last[:8]).to_bytes(4, "little")
    require(end == len(data) and last[8:] == checksum, "length of the index", len(data) - 20)
    position = len(data) - 28 - length
    require(0 <= position and length < 1 << 31, "length of the index", len(data) - 20)
    index, end = read_frame(data, position)
    require(len(index) == length and end == len(data) - 20, "length of the index", position)
    return data[:position], index


def sampled_bytes(stream: bytes) -> bytes:
    pieces, at = [len(stream).to_bytes(8, "little"), stream[:4096]], 65536
    while at < len(stream):
        pieces.append(stream[at:at + 4096])
        at *= 2
    return b"".join([*pieces, stream[-4096:]])


def read_index(index: bytes, stream: bytes, inside: bool, kind: int = GZIP) -> list[Unit]:
    file, size = io.BytesIO(index), len(index)
    read_header(file, size, INDEX_FILE)
    require(index[20:HEADER] == bytes(12), "guard of an index", 20)
    footer, limit = find_footer(file, size)
    footer.payload.require(footer.offset == 0, "offset")
    pages, with_lines = read_index_footer(footer.payload, stream, inside, kind)
    units: list[Unit] = []
    end = HEADER
    for page in pages:
        more = read_unit_page(file, page, end, limit, kind)
        require(not units or units[-1].end == more[0].first, "gap between units", page.position)
        require(more[-1].end <= 8 * len(stream), "units behind the end", page.position)
        units += more
        end = page.position + page.stored
    require(end == limit, "gap before the footer", end)
    missing = any(unit.lines is None for unit in units)
    require(not (with_lines and missing), "lines", limit)
    bare = inside and kind == GZIP
    require(not bare or all(unit.start == Start() for unit in units), "starts", limit)
    return units


def read_index_footer(footer: Cursor, stream: bytes, inside: bool,
                      kind: int) -> tuple[list[UnitPage], bool]:
    """The pages, and whether all of them have lines."""
    footer.require(footer.fixed(1) == kind, "format of the stream")
    flags = footer.fixed(1)
    footer.require(flags & ~(INSIDE | ALL_LINES) == 0 and flags & INSIDE == inside, "flags")
    footer.require(footer.varint() == len(stream), "length of the stream")
    digest = bytes(32) if inside else blake3.blake3(sampled_bytes(stream)).digest()
    footer.require(footer.take(32) == digest, "digest of the stream")
    length, offset, number = footer.varint(), 0, 0
    pages: list[UnitPage] = []
    for _ in range(footer.varint()):
        content, count, lines, position, stored = (footer.varint() for _ in range(5))
        footer.require(1 <= count <= MOST and max(count, lines) <= content, "page")
        pages.append(UnitPage(offset, content, number, count, lines, position, stored))
        offset, number = offset + content, number + count
    footer.require(offset == length, "sum of the pages")
    footer.finish()
    return pages, flags & ALL_LINES != 0


def read_unit_page(file: BinaryIO, known: UnitPage, floor: int, limit: int,
                   kind: int) -> list[Unit]:
    """The units of a page; its starts and its section are all there is from the floor on."""
    section = read_section(file, UNIT_PAGE, known.position, known.stored, limit)
    page, count = section.payload, known.count
    page.require((section.offset, section.number) == (known.offset, known.number), "place")
    page.require(page.varint() == count, "count of units")
    flags, first = page.fixed(1), page.varint()
    page.require(flags < 16, "flags")
    offsets = [known.offset + offset for offset in [0, *read_elias_fano(page, count)]]
    page.require(offsets[-1] == known.offset + known.length, "content")
    bits = [first + bit for bit in [0, *read_elias_fano(page, count)]]
    starts, behind = [Start()] * count, floor
    if flags & STARTS:
        page.require(page.varint() == floor, "place of the starts")
        lengths = read_sums(page, count)
        behind = floor + sum(lengths)
        page.require(behind <= known.position, "length of the starts")
        starts = read_starts(file, floor, lengths, kind)
    page.require(behind == known.position, "gap before the page")
    nothing = [None] * count
    stored = [page.fixed(4) for _ in range(count)] if flags & STORED_CHECKSUMS else nothing
    content = [page.fixed(4) for _ in range(count)] if flags & CONTENT_CHECKSUMS else nothing
    lines = read_sums(page, count) if flags & LINES else nothing
    page.require((sum(lines) if flags & LINES else 0) == known.lines, "sum of the lines")
    page.finish()
    for start, offset in zip(starts, offsets):
        page.require(len(start.window) <= offset, "window before the content")
    return [Unit(offset, after - offset, *rest) for offset, after, *rest in
            zip(offsets, offsets[1:], bits, bits[1:], starts, stored, content, lines)]


def read_sums(page: Cursor, count: int) -> list[int]:
    """What is stored of each unit as the sum up to it, plus how many units that are."""
    sums = [0, *read_elias_fano(page, count)]
    return [after - before - 1 for before, after in zip(sums, sums[1:])]


def read_starts(file: BinaryIO, position: int, lengths: list[int], kind: int) -> list[Start]:
    starts = []
    for length in lengths:
        starts.append(read_start(file, position, length, kind) if length else Start())
        position += length
    return starts


def read_start(file: BinaryIO, position: int, length: int, kind: int) -> Start:
    require(length > 4, "start", position)
    data = read_at(file, position, length, position + length, "start")
    start = Cursor(data[:-4], "start", position)
    checksum = crc32c(start.data, crc32c(position.to_bytes(8, "little")))
    start.require(int.from_bytes(data[-4:], "little") == checksum, "checksum")
    if kind == LZ4_FILE:  # flags and sizes of the frame
        both = start.fixed(2)
        start.finish()
        return Start(16, both)
    bits = start.varint()
    header = start.fixed((bits + 7) // 8)
    start.require(header >> bits == 0, "bits of the header")
    size = start.varint()
    start.require(size <= LONGEST_WINDOW and (bits or size), "window")
    window = start.take(len(start.data) - start.at)
    if len(window) != size:  # else these are the bytes themselves
        window = decode(decode_zstd, window, size, "start: window", position)
    return Start(bits, header, window)


def deflate_code(lengths: list[int]) -> list[tuple[int, int]]:
    """What any 15 bits begin with: a symbol, and how many bits that has, 0 where there is none."""
    table, word, last = [(0, 0)] * (1 << 15), 0, 0
    for length, symbol in sorted((n, symbol) for symbol, n in enumerate(lengths) if n):
        word <<= length - last
        if word >> length:
            raise ValueError("too many codewords")
        first = int(f"{word:0{length}b}"[::-1], 2)
        table[first::1 << length] = [(symbol, length)] * (1 << 15 - length)
        word, last = word + 1, length
    return table


@lru_cache(1)
def fixed_codes() -> tuple[list, list]:
    return deflate_code([8] * 144 + [9] * 112 + [7] * 24 + [8] * 8), deflate_code([5] * 30)


CODE_LENGTHS = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
MATCHES = [(n + 3, 0) for n in range(8)] + [
    (((4 + n % 4) << n // 4 - 1) + 3, n // 4 - 1) for n in range(8, 28)] + [(258, 0)]
DISTANCES = [(n + 1, 0) for n in range(4)] + [
    (((2 + n % 2) << n // 2 - 1) + 1, n // 2 - 1) for n in range(4, 30)]


class Inflater:
    """Decodes a gzip file from one bit to another; knows how far it is more exactly than zlib."""

    def __init__(self, data: bytes, first: int, end: int, start: Start = Start()):
        self.data, self.at, self.end = data, first, end
        self.out, self.least = bytearray(start.window), 0  # where the member begins in it
        self.bits, self.header = start.bits, start.header  # of the block that it is in
        self.final, self.codes, self.ended = 0, None, False
        if self.bits:
            header = Inflater(self.header.to_bytes((self.bits + 7) // 8, "little"), 0, self.bits)
            self.final, self.codes = header.read_header()
            if self.codes is None or header.at != self.bits:
                raise ValueError("header of a block")

    def peek(self) -> int:
        """At least 17 bits, of which those behind the end are not to be used."""
        start = self.at >> 3
        return int.from_bytes(self.data[start:start + 3], "little") >> (self.at & 7)

    def skip(self, count: int) -> None:
        self.at += count
        if self.at > self.end:
            raise ValueError("too few bits")

    def take(self, count: int) -> int:
        value = self.peek() & (1 << count) - 1
        self.skip(count)
        return value

    def symbol(self, code: list[tuple[int, int]]) -> int:
        symbol, length = code[self.peek() & 0x7FFF]
        if length == 0:
            raise ValueError("no codeword")
        self.skip(length)
        return symbol

    def read_header(self) -> tuple[int, tuple[list, list] | None]:
        """Whether a block is the last one, and its codes, if it is not stored."""
        final, kind = self.take(1), self.take(2)
        if kind == 3:
            raise ValueError("kind of block")
        if kind == 2:
            return final, self.read_codes()
        return final, fixed_codes() if kind else None

    def read_codes(self) -> tuple[list, list]:
        literals, distances, count = 257 + self.take(5), 1 + self.take(5), 4 + self.take(4)
        lengths = [0] * 19
        for place in CODE_LENGTHS[:count]:
            lengths[place] = self.take(3)
        code, lengths = deflate_code(lengths), []
        while len(lengths) < literals + distances:
            symbol = self.symbol(code)
            if symbol < 16:
                lengths.append(symbol)
            elif symbol == 16:
                lengths += [lengths[-1]] * (3 + self.take(2))
            else:
                lengths += [0] * (3 + self.take(3) if symbol == 17 else 11 + self.take(7))
        if len(lengths) != literals + distances or not lengths[256]:
            raise ValueError("code")
        return deflate_code(lengths[:literals]), deflate_code(lengths[literals:])

    def run(self, length: int) -> bytes:
        before = len(self.out)
        while self.at < self.end:
            if len(self.out) - before > length:
                raise ValueError("more content than there should be")
            if self.bits:
                self.read_symbol()
            else:
                self.begin_block()
        return bytes(self.out[before:])

    def begin_block(self) -> None:
        first = self.at
        self.final, self.codes = self.read_header()
        self.bits = self.at - first
        header = int.from_bytes(self.data[first >> 3:(self.at >> 3) + 1], "little")
        self.header = header >> (first & 7) & (1 << self.bits) - 1
        if self.codes is None:
            count = self.read_stored_length()
            start = self.at >> 3
            self.skip(8 * count)  # no unit begins within: it is not said what its start holds
            self.out += self.data[start:start + count]
            self.end_block()

    def read_stored_length(self) -> int:
        self.skip(-self.at % 8)
        count, inverse = self.take(16), self.take(16)
        if count ^ inverse != 0xFFFF:
            raise ValueError("length of a stored block")
        return count

    def read_symbol(self) -> None:
        literals, distances = self.codes
        symbol = self.symbol(literals)
        if symbol < 256:
            self.out.append(symbol)
        elif symbol == 256:
            self.end_block()
        else:
            first, bits = MATCHES[symbol - 257]
            length = first + self.take(bits)
            first, bits = DISTANCES[self.symbol(distances)]
            distance = first + self.take(bits)
            start = len(self.out) - distance
            if start < self.least:
                raise ValueError("match before the window")
            copy_within(self.out, start, length)

    def end_block(self) -> None:
        self.bits = self.header = 0
        if not self.final:
            return
        self.at, self.ended = min(self.at + 7 & ~7, self.end), True
        if self.at < self.end:
            self.skip(64)  # the trailer of the member
        if self.at < self.end:
            self.at, self.ended = 8 * skip_gzip_header(self.data, self.at >> 3), False
            self.skip(0)
            self.least = len(self.out)


def skip_gzip_header(data: bytes, position: int) -> int:
    header = Cursor(data[position:], "header of a member", position)
    header.require(header.take(3) == bytes.fromhex("1F 8B 08"), "magic")
    flags = header.fixed(1)
    header.require(flags < 32, "flags")
    header.take(6)
    if flags & 4:
        header.take(header.fixed(2))
    for flag in (8, 16):
        while flags & flag and header.fixed(1):
            pass  # name and comment end with a zero
    if flags & 2:
        header.take(2)
    return position + header.at


def check_stored(stream: bytes, unit: Unit) -> None:
    if unit.stored is not None:
        position = unit.first // 8
        checksum = crc32c(stream[position:(unit.end + 7) // 8])
        require(checksum == unit.stored, "unit: stored checksum", position)


def check_unit(stream: bytes, unit: Unit, content: bytes, after: Unit | None) -> None:
    """Decodes a unit by itself, from its own bits only; the content is that of the whole file."""
    position, end = unit.first // 8, unit.offset + unit.length
    inflater: Inflater | None = None

    def inflate(data: bytes, length: int) -> bytes:
        nonlocal inflater
        inflater = Inflater(data, unit.first, unit.end, unit.start)
        return inflater.run(length)

    decoded = decode(inflate, stream, unit.length, "unit", position)
    require(decoded == content[unit.offset:end], "unit: content", position)
    if after:  # it goes on where, and as, this one stopped
        stopped = inflater.bits, inflater.header
        fine = not inflater.ended and stopped == (after.start.bits, after.start.header)
        require(fine, "unit: start of the next", position)
    window = unit.start.window
    copied = zip(window, content[unit.offset - len(window):unit.offset])
    require(all(byte in (0, there) for byte, there in copied), "unit: window", position)
    checksum, lines = zlib.crc32(decoded), decoded.count(b"\n")
    require(unit.content in (None, checksum), "unit: content checksum", position)
    require(unit.lines in (None, lines), "unit: lines", position)


def check_rest(stream: bytes, unit: Unit) -> None:
    """Behind the last unit is no more content: it does not get longer to the stream's end."""
    def inflate(data: bytes, length: int) -> bytes:
        inflater = Inflater(data, unit.first, 8 * len(stream), unit.start)
        content = inflater.run(length)
        if not inflater.ended:
            raise ValueError("end of the stream")
        return content

    decode(inflate, stream, unit.length, "behind the last unit", unit.end // 8)


def check_index(path: Path) -> str | None:
    """What is wrong with the index of a gzip file, or with how it is read."""
    data, beside = path.read_bytes(), path.with_name(path.name + ".fidx")
    inside = not beside.exists()
    stream, index = split_file(data) if inside else (data, beside.read_bytes())
    units = read_index(index, stream, inside)
    for unit in units:
        check_stored(stream, unit)
    content = gzip.decompress(data)
    if (units[-1].offset + units[-1].length if units else 0) != len(content):
        return "another length of the content"
    for unit, after in zip(units, [*units[1:], None]):
        check_unit(stream, unit, content, after)
    if units:
        check_rest(stream, units[-1])
    if inside:
        member = zlib.decompressobj(wbits=31)
        if member.decompress(stream) != content or not member.eof or member.unused_data:
            return "not one member"
    return None


def check_lz4(path: Path) -> str | None:
    """What is wrong with the index at the end of an lz4 file, or with its blocks."""
    stream, index = split_lz4(path.read_bytes())
    for unit in read_index(index, stream, True, LZ4_FILE):
        check_stored(stream, unit)
        flags = unit.start.header & 255
        require(flags >> 5 == 0b011 and unit.first % 8 == unit.end % 8 == 0, "block", unit.offset)
        block = Cursor(stream[unit.first // 8:unit.end // 8], "block", unit.first // 8)
        size = block.fixed(4)
        stored = block.take(size & 0x7FFFFFFF)
        content = stored if size >> 31 else decode_lz4(stored, unit.length)
        if len(content) != unit.length or zlib.crc32(content) != unit.content:
            return f"other content at {unit.offset}"
    return None


# Phrases

DEFLATE, LZ4, SNAPPY = 1, 2, 3


def read_sealed(data: bytes, what: str) -> Cursor:
    """The fields of what ends with a checksum of all before it."""
    cursor = Cursor(data[:-4], what, 0)
    cursor.require(data[-4:] == crc32c(cursor.data).to_bytes(4, "little"), "checksum")
    return cursor


def read_phrases(data: bytes) -> bytes:
    """The content of a unit of phrases."""
    unit = read_sealed(data, "unit of phrases")
    length, count, literals = unit.varint(), unit.varint(), unit.varint()
    ends = read_elias_fano(unit, count) if count else []
    unit.require(length < 1 << 31 and [0, *ends][-1] == length, "length")
    runs = read_sums(unit, count) if count else []
    unit.require(sum(runs) == literals, "count of literals")
    width = length.bit_length()
    sources = unit.fixed((count * width + 7) // 8)
    unit.require(sources >> count * width == 0, "bits of the sources")
    behind, out = unit.part(literals, "literals"), bytearray()
    unit.finish()
    for number, (end, run) in enumerate(zip(ends, runs)):
        source = sources >> number * width & (1 << width) - 1
        out += behind.take(run)
        copied = end - len(out)
        if copied:
            unit.require(source < len(out) < end, "copy")
            copy_within(out, source, copied)
        unit.require(copied or (number == count - 1 and source == 0), "sequence without a copy")
    return bytes(out)


def read_phrase_index(data: bytes, stream: bytes) -> tuple[int, list[tuple[int, int, int]]]:
    """The coding; of each group its end, its place, and where the header of its block begins."""
    index = read_sealed(data, "index of phrases")
    coding, length = index.fixed(1), index.varint()
    index.require(coding in (DEFLATE, LZ4, SNAPPY), "coding")
    same = index.varint() == len(stream) and index.fixed(4) == crc32c(stream)
    index.require(same, "another stream")
    count = index.varint()
    ends = read_elias_fano(index, count) if count else []
    index.require(length < 1 << 31 and [0, *ends][-1] == length, "length")
    places = [place - 1 for place in read_elias_fano(index, count)] if count else []
    blocks, headers, header = index.varint(), [], 0
    index.require((blocks > 0) == (coding == DEFLATE and count > 0), "count of blocks")
    for number in range(blocks):
        groups, bits = index.varint(), index.varint()
        index.require((groups > 0) == (number > 0) and groups < count - len(headers), "groups")
        index.require(bits > 0 or number == 0, "header of a block")
        headers += [header] * groups
        header += bits
    index.finish()
    return coding, list(zip(ends, places, headers + [header] * (count - len(headers))))


def read_snappy(data: bytes, at: int, out: bytearray, length: int) -> int:
    """Adds what an element holds; returns where the next one is."""
    element = Cursor(data, "element", 0, at=at)
    tag = element.fixed(1)
    kind, count = tag & 3, (tag >> 2) + 1
    if kind == 0:
        out += element.take(count if count <= 60 else element.fixed(count - 60) + 1)
    elif kind == 1:
        copy_within(out, len(out) - (tag >> 5 << 8 | element.fixed(1)), (tag >> 2 & 7) + 4)
    else:
        copy_within(out, len(out) - element.fixed(2 if kind == 2 else 4), count)
    return element.at


def byte_places(read: Callable, stream: bytes, length: int) -> dict[int, tuple[int, int]]:
    cursor, out, places = Cursor(stream, "stream", 0), bytearray(), {}
    cursor.require(read == read_lz4 or cursor.varint() == length, "length")
    at = cursor.at
    while at == 0 or at < len(stream):
        places[at] = len(out), 0
        at = read(stream, at, out, length)
    require(len(out) == length, "length of the stream", at)
    return places


def deflate_places(stream: bytes, length: int) -> dict[int, tuple[int, int]]:
    """Of each phrase how much content is before it, and where the header of its block begins."""
    decode_deflate(stream, length)  # to its end, behind which the other looks for a trailer
    inflater, header, places = Inflater(stream, 0, 8 * len(stream)), 0, {}
    while not inflater.ended:
        at, before = inflater.at, len(inflater.out)
        if inflater.bits:
            places[at] = before, header
            inflater.read_symbol()
        else:
            inflater.begin_block()
            header, after = at, len(inflater.out)
            places |= {inflater.at - 8 * (after - offset): (offset, header)
                       for offset in range(before, after)}
    return places


@lru_cache(1)
def open_block(stream: bytes, header: int) -> Inflater:
    inflater = Inflater(stream, header, 8 * len(stream))
    inflater.final, inflater.codes = inflater.read_header()
    return inflater


def read_deflate(stream: bytes, at: int, out: bytearray, header: int) -> int:
    inflater = open_block(stream, header)
    inflater.at, inflater.out = at, out
    if inflater.codes:
        inflater.read_symbol()
    else:
        out.append(inflater.take(8))
    return inflater.at


def decode_groups(coding: int, groups: list[tuple], stream: bytes, content: bytes) -> bytes:
    """Each group by itself, from its own place; the content is what it may copy from."""
    read = read_lz4 if coding == LZ4 else read_snappy
    places = (deflate_places(stream, len(content)) if coding == DEFLATE
              else byte_places(read, stream, len(content)))
    decoded = bytearray()
    for end, at, header in groups:
        start, position = len(decoded), at // 8 if coding == DEFLATE else at
        out = bytearray(content[:start])
        while len(out) < end:
            require(places.get(at) == (len(out), header), "place of a phrase", position)
            at = (read_deflate(stream, at, out, header) if coding == DEFLATE
                  else read(stream, at, out, end))
        require(len(out) == end, "end of a group", position)
        decoded += out[start:]
    return bytes(decoded)


def check_phrases(path: Path) -> str | None:
    """What is wrong with a unit whose content is known, or with the index of its phrases."""
    data, content = path.read_bytes(), path.with_suffix(".content").read_bytes()
    beside = path.with_suffix(".index")
    if not beside.exists():
        return None if read_phrases(data) == content else "another content"
    coding, groups = read_phrase_index(beside.read_bytes(), data)
    decoded = decode(lambda stream, length: decode_groups(coding, groups, stream, content),
                     data, len(content), "groups", 0)
    return None if decoded == content else "another content of the groups"


# Events

NUMBERS = ("Bool", "U8", "U16", "U32", "U64", "I8", "I16", "I32", "I64", "F16", "F32", "F64")
SIZES = (1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8)
BITS = (1, *(8 * size for size in SIZES[1:]))
BOOL, U8, U32, I8, F16 = 0, 1, 3, 5, 9
FLOATS = ("<e", "<f", "<d")
ONE_OR_NONE, LIST, ARRAY, RECORD, TEXT, BYTES = range(32, 38)
VALUES, COUNTS, PRESENCE = "values", "counts", "presence"
AS_BYTES, BY_WORDS, AS_ANOTHER = range(3)  # how texts are told
BY_ITSELF, DIFFERENCE, EXCLUSIVE_OR, FROM_PLACE = range(4)  # what values are coded by
SHIFTED, DECIMAL, STEPS = range(3)  # maps
NOTHING, ANOTHER_COLUMN, OWN_LAST, COPIES, PLACE, PERIOD = range(6)  # what tables are chosen by
PACKED_TEXT, FIRST_REPEAT, FIRST_WORD = 25, 32, 256
OTHER_CLASS, MOST_CONTEXTS, LONGEST_PERIOD = 7, 8, 1024
DECIMAL_ZERO, DECIMAL_BITS = 1 << 53, 54
LONGEST_EVENT_BLOCK = 1 << 29
FNV_START, FNV_PRIME = 14695981039346656037, 1099511628211
MIX_FIRST, MIX_SECOND = 18397679294719823053, 14181476777654086739


@dataclass(frozen=True)
class Type:
    kind: int
    inside: "Type | None" = None
    items: int = 0  # of an array
    fields: "Fields" = ()


Fields = tuple[tuple[str, Type], ...]


@dataclass(frozen=True)
class Level:
    """Of items: each one above, on the parent, has as many as the counts tell, or an array has."""
    parent: int
    counts: int | None = None  # column, of presence too
    items: int = 0


@dataclass(frozen=True)
class Column:
    path: str
    role: str
    number: int
    level: int


@dataclass(eq=False)
class Layout:
    levels: list[Level] = field(default_factory=lambda: [Level(-1)])
    columns: list[Column] = field(default_factory=list)
    texts: list[int] = field(default_factory=list)  # columns of texts
    starts: list[int] = field(default_factory=list)  # the first column of each field


@dataclass(frozen=True)
class PacketPage:
    """What the footer tells of a page, and where its blocks may begin."""
    offset: int  # events of the segment before it
    number: int  # blocks of the segment before it
    blocks: int
    packets: int
    position: int
    stored: int


@dataclass(frozen=True)
class Segment:
    first: int  # event
    count: int
    model: tuple[int, int]  # position and length
    pages: list[tuple[int, int, int, int]]  # blocks, packets, position and length
    key: tuple[int, int] | None


@dataclass(eq=False)
class Events:
    file: BinaryIO
    limit: int
    layout: Layout
    keys: list[int]  # fields that events are found by
    count: int = 0
    segments: list[Segment] = field(default_factory=list)


def open_events(file: BinaryIO) -> Events:
    section, limit = find_last_footer(file, EVENTS_FILE)
    footer = section.payload
    fields = read_schema(file, footer.varint(), footer.varint(), limit)
    layout = lay_out(fields, footer)
    footer.require(footer.fixed(1) <= 2, "access")
    footer.varint()  # how many events somebody wanted in a packet
    events = Events(file, limit, layout, read_keys(footer, fields))
    for _ in range(footer.varint()):
        segment = read_segment(footer, events.count, bool(events.keys))
        events.segments.append(segment)
        events.count += segment.count
    footer.finish()
    footer.require((section.offset, section.number) == (events.count, 0), "sum of the segments")
    return events


def read_segment(footer: Cursor, first: int, keyed: bool) -> Segment:
    count, model = footer.varint(), (footer.varint(), footer.varint())
    footer.require(count >= 1, "events of a segment")
    key = (footer.varint(), footer.varint()) if keyed else None
    pages = [tuple(footer.varint() for _ in range(4)) for _ in range(footer.varint())]
    return Segment(first, count, model, pages, key)


def read_keys(footer: Cursor, fields: Fields) -> list[int]:
    keys = [footer.varint() for _ in range(footer.varint())]
    footer.require(keys == sorted(set(keys)), "order of the key's fields")
    for key in keys:
        footer.require(key < len(fields), "field of the key")
        kind = fields[key][1].kind
        footer.require(kind < len(NUMBERS) or kind in (TEXT, BYTES), "type of the key's field")
    return keys


# The schema

def read_schema(file: BinaryIO, position: int, length: int, limit: int) -> Fields:
    section = read_section(file, SCHEMA, position, length, limit)
    schema = section.payload
    schema.require(section.number == 0 and len(schema.data) // 64 <= length, "number and length")
    fields = read_fields(schema, 0)
    read_notes(schema)
    schema.finish()
    return fields


def read_text(cursor: Cursor) -> str:
    text = cursor.sized()
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{cursor.what}: {error}", cursor.here()) from error


def read_notes(cursor: Cursor) -> None:
    for _ in range(2 * cursor.varint()):
        read_text(cursor)


def read_fields(cursor: Cursor, depth: int) -> Fields:
    fields = []
    for _ in range(cursor.varint()):
        fields.append((read_text(cursor), read_type(cursor, depth)))
        read_notes(cursor)
    cursor.require(len(dict(fields)) == len(fields), "two fields of one name")
    return tuple(fields)


def read_type(cursor: Cursor, depth: int) -> Type:
    cursor.require(depth <= 16, "types too deep")
    kind = cursor.fixed(1)
    cursor.require(kind < len(NUMBERS) or ONE_OR_NONE <= kind <= BYTES, "type")
    if kind == RECORD:
        return Type(kind, fields=read_fields(cursor, depth + 1))
    items = cursor.varint() if kind == ARRAY else 0
    cursor.require(items <= 1 << 24 and (items > 0) == (kind == ARRAY), "items of an array")
    return Type(kind, read_type(cursor, depth + 1) if kind in (ONE_OR_NONE, LIST, ARRAY) else None, items)


def lay_out(fields: Fields, cursor: Cursor) -> Layout:
    layout = Layout()
    for name, of_field in fields:
        layout.starts.append(len(layout.columns))
        add_columns(layout, of_field, name, 0)
    columns = layout.columns
    cursor.require(len(columns) < 65536, "columns")
    cursor.require(sum(len(it.path.encode()) for it in columns) <= 1 << 24, "paths")
    alone = [0] * len(layout.levels)  # columns on each level, and levels below it
    for column in columns:
        alone[column.level] += 1
    for level in layout.levels[1:]:
        alone[level.parent] += 1
    for at, column in enumerate(columns):
        counts = layout.levels[column.level].counts
        if column.number == U8 and alone[column.level] == 1 and counts is not None:
            layout.texts += [at] if columns[counts].role == COUNTS else []
    return layout


def add_columns(layout: Layout, of: Type, path: str, level: int) -> None:
    columns, levels = layout.columns, layout.levels
    if of.kind < len(NUMBERS):
        columns.append(Column(path, VALUES, of.kind, level))
    elif of.kind == RECORD:
        for name, of_field in of.fields:
            add_columns(layout, of_field, f"{path}.{name}", level)
    elif of.kind == ARRAY:
        levels.append(Level(level, None, of.items))
        add_columns(layout, of.inside, path + "[]", len(levels) - 1)
    else:
        maybe = of.kind == ONE_OR_NONE
        levels.append(Level(level, len(columns)))
        columns.append(Column(path, *((PRESENCE, BOOL) if maybe else (COUNTS, U32)), level))
        add_columns(layout, of.inside or Type(U8), path + ("?" if maybe else "[]"), len(levels) - 1)


# The model of events

@dataclass(frozen=True)
class Map:
    """What makes integers of numbers; only the way back is taken here."""
    kind: int
    number: int
    bits: int  # of its integers
    shift: int = 0
    low: float = 0.0
    step: float = 1.0

    def number_of(self, integer: int) -> int:
        """The bits of a number."""
        if self.kind == DECIMAL:
            return float_bits((integer - DECIMAL_ZERO) / self.step, self.number)
        if self.kind == STEPS:
            return float_bits(integer * self.step + self.low, self.number)
        top = 1 << self.bits - 1
        if self.number >= F16 and not integer & top:
            integer ^= 2 * top - 1
        elif self.number >= I8:
            integer ^= top
        return integer << self.shift


def float_bits(value: float, number: int) -> int:
    try:
        data = struct.pack(FLOATS[number - F16], value)
    except OverflowError:
        data = struct.pack(FLOATS[number - F16], math.copysign(math.inf, value))
    return int.from_bytes(data, "little")


@dataclass(frozen=True)
class Table:
    bits: int
    parts: list[tuple[int, int, int]]  # of each its symbol, the parts of that, and how many are before


@dataclass(frozen=True)
class Coder:
    base: int
    first: int
    first_bits: int
    places: list[int]
    copies: list[tuple[int, int]]  # column, items ahead
    bins: list[tuple[Map, int, int]]  # first integer, bits
    maps: list[Map]
    symbols: int
    classes: dict[int, int]  # of the symbols that have one of their own
    context: int
    column: int
    tables: list[Table | None]


@dataclass(eq=False)
class EventModel:
    layout: Layout
    events: int  # of a packet
    values: int  # most of a packet
    texts: int  # most of a packet
    numbers: list[int] = field(default_factory=list)  # of each column, with words
    words: dict[int, list[bytes] | None] = field(default_factory=dict)  # None where it is as another
    levels: list[int] = field(default_factory=list)  # of each the one with its items, or itself
    columns: list[int] = field(default_factory=list)  # likewise, with its values
    coders: list[Coder | None] = field(default_factory=list)
    together: list[list[int]] = field(default_factory=list)  # columns of a level and those as it
    weights: list[int] = field(default_factory=list)  # how many levels and columns these are
    coded: bool = False  # whether there is a table of more than one symbol


def read_event_model(events: Events, segment: Segment, first: int) -> EventModel:
    section = read_section(events.file, MODEL, *segment.model, events.limit)
    payload, layout = section.payload, events.layout
    payload.require((section.offset, section.number) == (first, 0), "place")
    model = EventModel(layout, payload.varint(), payload.varint(), payload.varint())
    payload.require(1 <= model.events <= 65536, "events of a packet")
    payload.require(model.values <= 1 << 24, "values of a packet")
    payload.require(model.texts <= 1 << 28, "texts of a packet")
    read_words(payload, model)
    read_same_levels(payload, model)
    read_same_columns(payload, model)
    check_texts(payload, model)
    room = 1 << 26
    for at in range(len(layout.columns)):
        model.coders.append(read_coder(payload, model, at) if model.columns[at] == at else None)
        tables = list(filter(None, model.coders[-1].tables if model.coders[-1] else []))
        room -= sum(len(table.parts) for table in tables)
        payload.require(room >= 0, "size of the tables")
        model.coded = model.coded or any(table.bits for table in tables)
    payload.finish()
    return model


def read_words(payload: Cursor, model: EventModel) -> None:
    model.numbers = [column.number for column in model.layout.columns]
    for column in model.layout.texts:
        how = payload.fixed(1)
        payload.require(how <= AS_ANOTHER, "how texts are told")
        if how != AS_BYTES:
            model.numbers[column] = U32
            model.words[column] = read_vocabulary(payload) if how == BY_WORDS else None


def read_vocabulary(payload: Cursor) -> list[bytes]:
    count = payload.varint()
    payload.require(count <= 1 << 16, "count of words")
    lengths = [payload.varint() for _ in range(count)]
    payload.require(all(1 <= length <= 1 << 16 for length in lengths), "length of a word")
    payload.require(sum(lengths) <= 1 << 22, "length of the words")
    return [payload.take(length) for length in lengths]


def read_same_levels(payload: Cursor, model: EventModel) -> None:
    levels, same = model.layout.levels, model.levels
    same.append(0)
    for at in range(1, len(levels)):
        back = payload.varint()
        payload.require(back < at, "level of the same items")
        same.append(same[at - back] if back else at)
        parents = levels[at].parent, levels[same[at]].parent
        payload.require(back == 0 or (
            same[at] > 0 and same[parents[0]] == same[parents[1]]), "level of the same items")
    model.together = [[] for _ in levels]
    for at, column in enumerate(model.layout.columns):
        model.together[same[column.level]].append(at)
    model.weights = [len(columns) for columns in model.together]
    for level in same:
        model.weights[level] += 1


def read_same_columns(payload: Cursor, model: EventModel) -> None:
    columns, same = model.layout.columns, model.columns
    for at, column in enumerate(columns):
        back = payload.varint()
        payload.require(back <= at, "column of the same values")
        same.append(at - back)
        if back:
            other = at - back
            payload.require(same[other] == other, "column of the same values")
            payload.require(model.numbers[other] == model.numbers[at], "number of the same values")
            payload.require(same_level(model, other, column.level), "level of the same values")


def same_level(model: EventModel, column: int, level: int) -> bool:
    return model.levels[model.layout.columns[column].level] == model.levels[level]


def check_texts(payload: Cursor, model: EventModel) -> None:
    """Where texts are those of another column, that is told by words, and as many of each."""
    for column, words in model.words.items():
        if words is None:
            other = model.columns[column]
            payload.require(model.words.get(other) is not None, "column of the same texts")
            payload.require(model.columns[column - 1] == model.columns[other - 1],
                            "words of the same texts")


def read_coder(payload: Cursor, model: EventModel, own: int) -> Coder:
    base, first, first_bits = payload.fixed(1), 0, 0
    payload.require(base <= FROM_PLACE, "base")
    places = []
    if base == FROM_PLACE:
        places = [payload.varint() for _ in range(read_period(payload))]
    elif base:
        first, first_bits = payload.varint(), payload.fixed(1)
    copies = read_copies(payload, model, own)
    maps = [read_map(payload, model.numbers[own]) for _ in range(payload.varint())]
    payload.require(not base or (len(copies), len(maps)) == (0, 1), "copies or maps with a base")
    payload.require(all(place < 1 << maps[0].bits for place in places), "integer of a place")
    if base:
        payload.require(first + (1 << first_bits) <= 1 << maps[0].bits, "first value")
    bins = [(which, *bounds) for which in maps for bounds in read_bins(payload, which.bits)]
    escape = payload.fixed(1)
    payload.require(escape <= 1, "escape")
    symbols = len(copies) + len(bins) + escape
    named = [payload.varint() for _ in range(payload.fixed(1))]
    payload.require(len(set(named)) == len(named) <= 7, "named symbols")
    payload.require(all(symbol < symbols for symbol in named), "named symbol")
    context, column = read_context(payload, model, own)
    contexts = {NOTHING: 1, PERIOD: column}.get(context, MOST_CONTEXTS)
    there = payload.fixed((contexts + 7) // 8)
    payload.require(there >> contexts == 0, "tables without a context")
    tables = [read_shares(payload, symbols) if there >> at & 1 else None
              for at in range(contexts)]
    classes = {symbol: at for at, symbol in enumerate(named)}
    return Coder(base, first, first_bits, places, copies, bins, maps, symbols, classes, context, column, tables)


def read_copies(payload: Cursor, model: EventModel, own: int) -> list[tuple[int, int]]:
    copies, level = [], model.layout.columns[own].level
    for _ in range(payload.varint()):
        column, ahead = payload.varint(), payload.fixed(1)
        payload.require(column <= own and same_level(model, column, level), "column of a copy")
        payload.require(model.numbers[column] == model.numbers[own], "number of a copy")
        payload.require(ahead < (8 if column == own else 16), "item of a copy")
        copies.append((column, ahead - 8))
    return copies


def read_map(payload: Cursor, number: int) -> Map:
    kind = payload.fixed(1)
    payload.require(kind <= STEPS and (kind == SHIFTED or number >= F16), "map")
    if kind == STEPS:
        low, step = struct.unpack("<dd", payload.take(16))
        return Map(kind, number, DECIMAL_BITS, 0, low, step)
    of = payload.fixed(1)
    if kind == DECIMAL:
        payload.require(of <= 22, "places")
        return Map(kind, number, DECIMAL_BITS, step=float(10 ** of))
    payload.require(of < BITS[number], "shift")
    return Map(kind, number, BITS[number] - of, of)


def read_bins(payload: Cursor, limit: int) -> list[tuple[int, int]]:
    """The first integer of each, and its bits."""
    bins, end, last = [], 0, 64
    for _ in range(payload.varint()):
        bits, gap = payload.fixed(1), payload.varint()
        start = end + (gap << min(bits, last))
        end, last = start + (1 << bits), bits
        payload.require(start % (1 << bits) == 0 and end <= 1 << limit, "bin")
        bins.append((start, bits))
    return bins


def read_period(payload: Cursor) -> int:
    period = payload.varint()
    payload.require(2 <= period <= LONGEST_PERIOD, "period")
    return period


def read_context(payload: Cursor, model: EventModel, own: int) -> tuple[int, int]:
    """What tables are chosen by, and the column of that, or the period."""
    context, column, level = payload.fixed(1), 0, model.layout.columns[own].level
    payload.require(context <= PERIOD, "context")
    if context == PERIOD:
        column = read_period(payload)
    if context == ANOTHER_COLUMN:
        column, parent = payload.varint(), model.layout.levels[level].parent
        payload.require(column < own, "column of the context")
        above = parent >= 0 and same_level(model, column, parent)
        payload.require(above or same_level(model, column, level), "level of the context")
    return context, column


def read_shares(payload: Cursor, symbols: int) -> Table:
    bits = payload.fixed(1)
    payload.require(bits <= 10, "parts of a table")
    parts: list[tuple[int, int, int]] = []
    symbol = 0
    while symbol < symbols:
        count = payload.varint()
        payload.require(count <= (1 << bits) - len(parts), "parts of a symbol")
        payload.require(bits == 0 or count < 1 << bits, "table of one symbol")
        parts += [(symbol, count, before) for before in range(count)]
        symbol += 1 if count else 1 + payload.varint()
    payload.require(symbol == symbols and len(parts) == 1 << bits, "sum of the parts")
    return Table(bits, parts)


# Packets

class Symbols:
    """What a packet holds: symbols from the front on, bits from the end backward."""

    def __init__(self, packet: Cursor, coded: bool):
        self.packet, self.taken, self.state = packet, 0, 1 << 16
        if coded:
            self.state = packet.fixed(4)
            packet.require(self.state >= 1 << 16, "number before the first symbol")

    def symbol(self, table: Table) -> int:
        symbol, count, before = table.parts[self.state & (1 << table.bits) - 1]
        if table.bits:
            self.state = count * (self.state >> table.bits) + before
            if self.state < 1 << 16:
                self.state = self.state << 16 | self.packet.fixed(2)
        return symbol

    def bits(self, count: int) -> int:
        data, end = self.packet.data, self.taken + count
        first, last = self.taken // 8, (end + 7) // 8
        self.packet.require(last <= len(data), "ends too early")
        value = int.from_bytes(data[len(data) - last:len(data) - first], "big")
        value = value >> self.taken % 8 & (1 << count) - 1
        self.taken = end
        return value

    def finish(self) -> None:
        packet = self.packet
        packet.require(self.state == 1 << 16, "number behind the last symbol")
        packet.require(self.bits(-self.taken % 8) == 0, "bits of the last byte")
        packet.require(packet.at + self.taken // 8 == len(packet.data), "length")


class Decoder:
    """Of one packet."""

    def __init__(self, model: EventModel, packet: Cursor, events: int):
        self.model, self.packet, self.room = model, packet, model.values
        columns, levels = model.layout.columns, model.layout.levels
        self.symbols = Symbols(packet, model.coded)
        self.values: list[list[int]] = [[] for _ in columns]
        self.classes: list[list[int]] = [[] for _ in columns]
        # Of each level for each item the one above that it is in, and which in its list it is.
        self.above: list[list[int]] = [[] for _ in levels]
        self.places: list[list[int]] = [[] for _ in levels]
        for level, same in enumerate(model.levels):
            self.decode_level(level, same, self.counts(level) if level else [events])
        texts = self.read_texts()
        self.symbols.finish()
        for column, of_column in texts.items():
            self.values[column - 1] = [len(text) for text in of_column]
            self.values[column] = list(b"".join(of_column))

    def decode_level(self, level: int, same: int, counts: list[int]) -> None:
        if same != level:
            self.packet.require(counts == self.counts(same), "items of a level")
            self.above[level], self.places[level] = self.above[same], self.places[same]
            return
        count = sum(counts)
        self.room -= count * self.model.weights[level]
        self.packet.require(self.room >= 0, "count of values")
        self.above[level] = [item for item, many in enumerate(counts) for _ in range(many)]
        self.places[level] = [place for many in counts for place in range(many)]
        for column in self.model.together[level]:
            self.decode_column(column, level)

    def counts(self, number: int) -> list[int]:
        level = self.model.layout.levels[number]
        if level.counts is None:
            return [level.items] * len(self.above[level.parent])
        return self.values[level.counts]

    def decode_column(self, own: int, level: int) -> None:
        same = self.model.columns[own]
        coder, bits = self.model.coders[same], BITS[self.model.numbers[own]]
        if same != own:
            self.values[own], self.classes[own] = self.values[same], self.classes[same]
            return
        values, classes, copies, last = self.values[own], self.classes[own], 0, 0
        for item in range(len(self.above[level])):
            if coder.base in (DIFFERENCE, EXCLUSIVE_OR) and item == 0:
                last = coder.first + self.symbols.bits(coder.first_bits)
                values.append(coder.maps[0].number_of(last))
                classes.append(OTHER_CLASS)
                continue
            table = coder.tables[self.context(coder, own, item, level, copies)]
            self.packet.require(table is not None, "context without a table")
            symbol = self.symbols.symbol(table)
            classes.append(coder.classes.get(symbol, OTHER_CLASS))
            at = symbol - len(coder.copies)
            copies = copies + 1 if at < 0 else 0
            if at < 0:
                values.append(self.copied(coder.copies[symbol], item))
            elif at == len(coder.bins):
                values.append(self.symbols.bits(bits))
                last = 0  # a number that is told by itself has no integer
            else:
                which, start, more = coder.bins[at]
                if coder.base == FROM_PLACE:
                    last = coder.places[self.places[level][item] % len(coder.places)]
                last = based(coder.base, start + self.symbols.bits(more), last, which.bits)
                values.append(which.number_of(last))
        if self.model.numbers[own] == BOOL:
            self.packet.require(max(values, default=0) <= 1, "boolean")

    def copied(self, copy: tuple[int, int], item: int) -> int:
        column, ahead = copy
        self.packet.require(0 <= item + ahead < len(self.values[column]), "copy from outside")
        return self.values[column][item + ahead]

    def context(self, coder: Coder, own: int, item: int, level: int, copies: int) -> int:
        if coder.context == ANOTHER_COLUMN:
            if not same_level(self.model, coder.column, level):
                item = self.above[level][item]
            return self.classes[coder.column][item]
        if coder.context == OWN_LAST:
            return self.classes[own][-1] if item else OTHER_CLASS
        if coder.context == COPIES:
            return min(copies, MOST_CONTEXTS - 1)
        if coder.context == PERIOD:
            return self.places[level][item] % coder.column
        return min(self.places[level][item], MOST_CONTEXTS - 1) if coder.context == PLACE else 0

    def read_texts(self) -> dict[int, list[bytes]]:
        """The texts of the columns that are told by words."""
        texts, room = {}, self.model.texts
        for column, words in self.model.words.items():
            if words is None:
                texts[column] = texts[self.model.columns[column]]
                room -= sum(map(len, texts[column]))
            else:
                texts[column] = []
                room = self.read_column(column, words, texts[column], room)
            self.packet.require(room >= 0, "length of the texts")
        return texts

    def read_column(self, column: int, words: list[bytes], texts: list[bytes], room: int) -> int:
        start, before = 0, b""
        for count in self.values[column - 1]:
            numbers = self.values[column][start:start + count]
            if numbers[:1] == [PACKED_TEXT]:
                self.packet.require(max(numbers[1:], default=0) <= 24, "packed text")
                packed = Cursor(self.tell(numbers[1:], words, b"", len(self.packet.data)),
                                f"{self.packet.what}: packed text", self.packet.here(), False)
                length = packed.fixed(4)
                packed.require(length <= room, "length")
                before = decode(decode_zstd, packed.data[4:], length, packed.what, packed.here())
            else:
                before = self.tell(numbers, words, before, room)
            texts.append(before)
            room -= len(before)
            start += count
        return room

    def tell(self, numbers: list[int], words: list[bytes], before: bytes, room: int) -> bytes:
        """What the numbers of a text stand for."""
        text = bytearray()
        for number in numbers:
            if number >= FIRST_WORD:
                self.packet.require(number - FIRST_WORD < len(words), "word")
                text += words[number - FIRST_WORD]
            elif number >= FIRST_REPEAT:
                end = len(text) + number - FIRST_REPEAT + 1
                self.packet.require(end <= len(before), "bytes of the text before")
                text += before[len(text):end]
            else:
                self.packet.require(number < PACKED_TEXT, "number of a text")
                text += self.packet.take(1 << number)
            self.packet.require(len(text) <= room, "length of the texts")
        return bytes(text)


def based(base: int, integer: int, last: int, bits: int) -> int:
    if base in (DIFFERENCE, FROM_PLACE):
        return (last + integer - (1 << bits - 1)) % (1 << bits)
    return integer ^ last if base == EXCLUSIVE_OR else integer


# Segments

def read_event_block(file: BinaryIO, position: int, length: int, limit: int) -> list[Cursor]:
    """Its packets."""
    require(4 < length <= LONGEST_EVENT_BLOCK, "length of a block", position)
    data = read_at(file, position, length, limit, "block")
    block = Cursor(data[:-4], "block", position)
    checksum = crc32c(block.data, crc32c(position.to_bytes(8, "little")))
    block.require(int.from_bytes(data[-4:], "little") == checksum, "checksum")
    count, shortest, differ = block.varint(), block.varint(), block.fixed(1)
    block.require(1 <= count <= 1 << 20, "count of packets")
    block.require(differ <= 1, "how lengths are told")
    lengths = [shortest] * count
    if differ:
        lengths = [shortest + more for more in read_sums(block, count)]
        block.require(min(lengths) == shortest < max(lengths), "lengths of packets")
    packets = [block.part(length, "packet") for length in lengths]
    block.finish()
    return packets


def read_packet_page(events: Events, page: PacketPage, floor: int) -> Iterator[Cursor]:
    """The packets of the blocks before it, which begin at the floor or behind it."""
    section = read_section(events.file, PACKET_PAGE, page.position, page.stored, events.limit)
    payload = section.payload
    payload.require((section.offset, section.number) == (page.offset, page.number), "place")
    back, count = payload.varint(), payload.varint()
    payload.require(1 <= count <= MOST and count == page.blocks, "count of blocks")
    payload.require(floor <= page.position - back, "blocks before their segment")
    ends, packets = read_elias_fano(payload, count), read_elias_fano(payload, count)
    payload.finish()
    payload.require(ends[-1] == back and packets[-1] == page.packets, "sum of the blocks")
    start = page.position - back
    for first, end, before, until in zip([0, *ends], ends, [0, *packets], packets):
        block = read_event_block(events.file, start + first, end - first, page.position)
        require(len(block) == until - before, "count of packets", start + first)
        yield from block


def segment_packets(events: Events, segment: Segment, model: EventModel,
                    floor: int) -> Iterator[list[list[int]]]:
    """The values of each packet, column by column."""
    left, blocks = segment.count, 0
    count = sum(packets for _, packets, _, _ in segment.pages)
    require(count == -(-left // model.events), "count of packets", floor)
    for known in segment.pages:
        page = PacketPage(segment.count - left, blocks, *known)
        for packet in read_packet_page(events, page, floor):
            many = min(left, model.events)
            yield Decoder(model, packet, many).values
            left -= many
        floor, blocks = page.position + page.stored, blocks + page.blocks
    if segment.key:
        require(floor <= segment.key[0], "key page before its segment", segment.key[0])


def all_packets(events: Events) -> Iterator[tuple[Segment, list[list[int]]]]:
    models: dict[tuple[int, int], EventModel] = {}
    floor = HEADER
    for segment in events.segments:
        if segment.model not in models:
            require(floor <= segment.model[0], "model before its segment", segment.model[0])
            models[segment.model] = read_event_model(events, segment, segment.first)
            floor = sum(segment.model)
        for values in segment_packets(events, segment, models[segment.model], floor):
            yield segment, values
        ends = [position + stored for _, _, position, stored in segment.pages]
        floor = max(floor, *ends, sum(segment.key or ()))


# Keys

def key_hash(key: bytes) -> int:
    value = FNV_START
    for byte in key:
        value = (value ^ byte) * FNV_PRIME & ALL_ONES
    for factor in (MIX_FIRST, MIX_SECOND):
        value = (value ^ value >> 33) * factor & ALL_ONES
    return value ^ value >> 33


def packet_keys(events: Events, values: list[list[int]]) -> list[bytes]:
    """What is hashed of each event of a packet."""
    keys: dict[int, bytes] = {}
    for at in [events.layout.starts[key] for key in events.keys]:
        column, start = events.layout.columns[at], 0
        for event, value in enumerate(values[at]):
            if column.role == COUNTS:
                keys[event] = keys.get(event, b"") + bytes(values[at + 1][start:start + value])
                start += value
            keys[event] = keys.get(event, b"") + value.to_bytes(SIZES[column.number], "little")
    return list(keys.values())


def check_key_page(events: Events, segment: Segment, hashes: list[int]) -> None:
    """Whether it tells of the events that have these hashes."""
    section = read_section(events.file, KEY_PAGE, *segment.key, events.limit)
    payload = section.payload
    payload.require((section.offset, section.number) == (segment.first, 0), "place")
    width, bits = payload.fixed(1), payload.fixed(1)
    payload.require(segment.count <= 1 << width and width + bits <= 62, "bits")
    keys = read_elias_fano(payload, segment.count)
    payload.finish()
    expected = sorted((value >> 64 - bits << width | number) + 1 for number, value in enumerate(hashes))
    payload.require(keys == expected, "hashes")


def events_manifest(events: Events) -> str:
    """Reads and verifies everything."""
    columns = events.layout.columns
    counts, digests = [0] * len(columns), [blake3.blake3() for _ in columns]
    hashes: dict[int, list[int]] = {segment.first: [] for segment in events.segments}
    for segment, values in all_packets(events):
        for at, column in enumerate(columns):
            size = SIZES[column.number]
            digests[at].update(b"".join(value.to_bytes(size, "little") for value in values[at]))
            counts[at] += len(values[at])
        hashes[segment.first] += map(key_hash, packet_keys(events, values))
    for segment in events.segments:
        if segment.key:
            check_key_page(events, segment, hashes[segment.first])
    lines = [f"events {events.count}"]
    for column, count, digest in zip(columns, counts, digests):
        number = NUMBERS[column.number]
        lines.append(f"{column.path} {column.role} {number} {count} {digest.hexdigest()}")
    return "\n".join(lines) + "\n"


def check_events(path: Path) -> str | None:
    with path.open("rb") as file:
        same = events_manifest(open_events(file)).encode() == path.with_suffix(".columns").read_bytes()
    return None if same else "another manifest"


# Volumes

SUPERBLOCK_MAGIC = bytes.fromhex("66 69 63 68 65 76 6F 6C")
SUPERBLOCKS = (4096, 8192, 12288, 16384)
SUPERBLOCK, EXTENT, FRAGMENT = 120, 24, 16
LONGEST_EXTENT, PLACE_LENGTH, ALIGNMENT = 1 << 20, 5, 8
DEVICE_BLOCK, FANOUT, OPENING = 4096, 1024, 40  # an opening is told by the bits from this one on
PATTERN, ZEROS, MAP_NODE, USAGE_PAGE, USAGE_ROOT = 16, 17, 32, 33, 34
SNAPSHOT, SNAPSHOT_ROOT, MOST_SNAPSHOTS = 35, 36, 4096
COPY_OF_DICTIONARY, DICTIONARY_ROOT, MOST_DICTIONARIES, LONGEST_DICTIONARY = 37, 38, 16, 131072
CLONES, REGION, MOST_REGIONS = 39, 1 << 30, 1023
TRAINED = 64  # and one more for each number of a dictionary
LONGEST_UNIT, LONGEST_PATTERN, LONGEST_ZEROS = 32, 4096, (1 << 24) - 1


@dataclass(eq=False)
class Volume:
    file: BinaryIO
    size: int  # of the file
    tag: bytes
    blocks: int
    bits: int  # of the length of a segment
    most: int
    segments: int
    next: int
    head: int
    map: int
    usage: int
    second_head: int  # 0 for nowhere
    snapshots: int  # 0 for none
    dictionaries: int
    clones: int
    copies: dict[tuple[int, int], int]  # where those of a number lie, each with its own
    known: dict[int, object]  # dictionaries by their numbers, once they were read
    regions: dict[int, "Branch"]  # clones by their regions


@dataclass(frozen=True)
class Fragment:
    position: int
    block: int
    count: int
    kind: int
    stored: bytes
    checksum: bytes

    def require(self, condition: bool, what: str) -> None:
        require(condition, f"fragment: {what}", self.position)


@dataclass(frozen=True)
class Extent:
    fragments: list[Fragment]
    after: int  # where the one that follows lies


@dataclass(frozen=True)
class Run:
    """Blocks of the device that are found in one fragment, or that are zero if that is at 0."""
    start: int
    end: int
    position: int


def open_volume(file: BinaryIO) -> Volume:
    size = file.seek(0, 2)
    require(size < 1 << 63, "length of the file", 0)
    read_header(file, size, VOLUME_FILE)
    right = [it for it in (find_superblock(file, size, position) for position in SUPERBLOCKS) if it]
    require(right != [], "superblock", SUPERBLOCKS[0])
    return read_superblock(file, size, max(right, key=lambda it: it.data[16:24][::-1]))


def find_superblock(file: BinaryIO, size: int, position: int) -> Cursor | None:
    if position + SUPERBLOCK > size:
        return None
    superblock = Cursor(read_at(file, position, SUPERBLOCK, size, "superblock"), "superblock", position)
    magic, checksum = superblock.take(8), superblock.fixed(4)
    expected = crc32c(position.to_bytes(8, "little") + superblock.data[12:])
    return superblock if (magic, checksum) == (SUPERBLOCK_MAGIC, expected) else None


def read_superblock(file: BinaryIO, size: int, superblock: Cursor) -> Volume:
    tag, generation, blocks = superblock.take(4), superblock.fixed(8), superblock.fixed(8)
    even = superblock.position in SUPERBLOCKS[::2]
    superblock.require((generation % 2 == 0) == even, "place of the generation")
    superblock.require(generation <= 1 << 39, "generation")
    superblock.require(1 <= blocks <= 1 << 40, "length of the device")
    bits, codec, _, unit = (superblock.fixed(1) for _ in range(4))
    superblock.require(16 <= bits <= 26, "length of a segment")
    superblock.require(codec in UNIT_CODECS and 1 <= unit <= LONGEST_UNIT, "how new units are stored")
    superblock.require(2 * unit * DEVICE_BLOCK <= 1 << bits, "length of units")
    most, segments, reserved = (superblock.fixed(4) for _ in range(3))
    superblock.require(1 < segments <= most and segments << bits <= size, "count of segments")
    volume = Volume(file, size, tag, blocks, bits, most, segments,
                    *(superblock.fixed(8) for _ in range(8)), {}, {}, {})
    superblock.require(reserved == 0 and not any(superblock.take(8)), "reserved bytes")
    superblock.require(volume.clones == 0 or blocks <= REGION, "length of a device with clones")
    superblock.require(lies_inside(volume, volume.head, EXTENT), "place of the log")
    second = volume.second_head
    apart = lies_inside(volume, second, EXTENT) and second >> bits != volume.head >> bits
    superblock.require(second == 0 or apart, "second place of the log")
    return volume


def lies_inside(volume: Volume, position: int, length: int) -> bool:
    """Whether a segment of the log may have these bytes; the log may be in more than there were."""
    segment, start = position >> volume.bits, position % (1 << volume.bits)
    inside = 1 <= segment < volume.most and start + length <= 1 << volume.bits
    return inside and position % ALIGNMENT == 0


# Fragments

def take_fragment(volume: Volume, cursor: Cursor) -> Fragment:
    position, checksum = cursor.here(), cursor.fixed(4)
    start = cursor.at
    block, count, length = cursor.fixed(5), cursor.fixed(3), cursor.fixed(3)
    kind, stored = cursor.fixed(1), cursor.take(length)
    fragment = Fragment(position, block, count, kind, stored, checksum.to_bytes(4, "little"))
    expected = crc32c(volume.tag + cursor.data[start:cursor.at])
    fragment.require(checksum == expected, "checksum")
    return fragment


@lru_cache(2 * LONGEST_UNIT)
def read_fragment(volume: Volume, position: int) -> Fragment:
    require(lies_inside(volume, position, FRAGMENT), "fragment: place", position)
    header = read_at(volume.file, position, FRAGMENT, volume.size, "fragment")
    length = FRAGMENT + int.from_bytes(header[12:15], "little")
    require(length <= LONGEST_EXTENT and lies_inside(volume, position, length),
            "fragment: length", position)
    data = read_at(volume.file, position, length, volume.size, "fragment")
    return take_fragment(volume, Cursor(data, "fragment", position))


def read_known(volume: Volume, position: int, kind: int, block: int, count: int,
               apart: int = 0) -> Fragment:
    """Its number may be another by a multiple of `apart`."""
    fragment = read_fragment(volume, position)
    fragment.require(fragment.kind == kind, "kind")
    same = (fragment.block - block) % apart == 0 if apart else fragment.block == block
    fragment.require(same and fragment.count == count, "block and count")
    return fragment


def read_packed(fragment: Fragment) -> Cursor:
    """The content of a node or usage page."""
    stored = Cursor(fragment.stored, "fragment", fragment.position + FRAGMENT)
    length, data = stored.fixed(2), stored.data[2:]
    if length:
        data = decode(decode_zstd, data, length, "fragment", fragment.position)
    return Cursor(data, "fragment: content", fragment.position, False)


def is_of_blocks(fragment: Fragment) -> bool:
    return fragment.kind <= ZEROS or is_trained(fragment)


def is_trained(fragment: Fragment) -> bool:
    return TRAINED <= fragment.kind < TRAINED + MOST_DICTIONARIES


def check_unit_of_blocks(fragment: Fragment) -> None:
    most, length = LONGEST_UNIT, len(fragment.stored)
    fragment.require(is_of_blocks(fragment), "kind")
    if fragment.kind == PATTERN:
        most, right = LONGEST_PATTERN, length == ALIGNMENT
    elif fragment.kind == ZEROS:
        most, right = LONGEST_ZEROS, length == 0
    else:
        fragment.require(fragment.kind in UNIT_CODECS or is_trained(fragment), "kind")
        right = 1 <= length <= fragment.count * DEVICE_BLOCK
    fragment.require(right, "length")
    fragment.require(1 <= fragment.count <= most, "count of blocks")


@lru_cache(2 * LONGEST_UNIT)  # a unit may be the one of every other block among 32
def read_unit(volume: Volume, fragment: Fragment) -> bytes:
    """What all its blocks are, or each of them where they repeat the same."""
    if fragment.kind == ZEROS:
        return bytes(DEVICE_BLOCK)
    if fragment.kind == PATTERN:
        return fragment.stored * (DEVICE_BLOCK // ALIGNMENT)
    length = fragment.count * DEVICE_BLOCK
    if is_trained(fragment):
        dictionary = find_dictionary(volume, fragment.kind - TRAINED)
        return decode(partial(decode_zstd, dictionary=dictionary), fragment.stored, length,
                      "unit", fragment.position)
    if len(fragment.stored) == length:
        return fragment.stored
    return decode(DECODERS[fragment.kind], fragment.stored, length, "unit", fragment.position)


def find_block(volume: Volume, block: int, position: int) -> Fragment:
    fragment = read_fragment(volume, position)
    check_unit_of_blocks(fragment)
    fragment.require((block - fragment.block) % REGION < fragment.count, f"not of block {block}")
    return fragment


def read_device_block(volume: Volume, block: int, position: int) -> bytes:
    fragment = find_block(volume, block, position)
    content = read_unit(volume, fragment)
    if fragment.kind in (PATTERN, ZEROS):
        return content
    start = (block - fragment.block) % REGION * DEVICE_BLOCK
    return content[start:start + DEVICE_BLOCK]


# The log

def read_extent(volume: Volume, position: int, number: int) -> Extent | None:
    """None where there is no whole one of that number."""
    if not lies_inside(volume, position, EXTENT) or position + EXTENT > volume.size:
        return None
    data = read_at(volume.file, position, EXTENT, volume.size, "extent")
    extent = Cursor(data, "extent", position)
    checksum = crc32c(volume.tag + position.to_bytes(8, "little") + data[4:])
    if extent.fixed(4) != checksum:
        return None
    length, found = extent.fixed(4), extent.fixed(8)
    if found != number:
        return None
    count, reserved, following = extent.fixed(2), extent.fixed(2), extent.fixed(4)
    extent.require(reserved == 0, "reserved bytes")
    extent.require(length <= LONGEST_EXTENT and lies_inside(volume, position, EXTENT + length), "length")
    if count == 0:
        extent.require(length == 0 and 1 <= following < volume.most, "next segment")
        return Extent([], following << volume.bits)
    if position + EXTENT + length > volume.size:
        return None
    fragments = read_fragments(volume, position + EXTENT, length, count)
    if fragments and following != crc32c(b"".join(it.checksum for it in fragments)):
        return None
    return fragments and Extent(fragments, position + EXTENT + length)


def read_fragments(volume: Volume, position: int, length: int, count: int) -> list[Fragment] | None:
    """Those of an extent; None where one was not written whole."""
    data = read_at(volume.file, position, length, volume.size, "extent")
    cursor, fragments, between = Cursor(data, "extent", position), [], b""
    try:
        for _ in range(count):
            fragments.append(take_fragment(volume, cursor))
            between += cursor.take(-cursor.at % ALIGNMENT)
    except FormatError:
        return None
    cursor.finish()
    cursor.require(not any(between), "bytes between fragments")
    return fragments


def put_run(runs: list[Run], new: Run) -> None:
    """In place of what those that are there say of the same blocks."""
    first = bisect_right(runs, new.start, key=lambda run: run.end)
    last = bisect_left(runs, new.end, key=lambda run: run.start)
    before = [Run(run.start, new.start, run.position) for run in runs[first:last][:1]]
    behind = [Run(new.end, run.end, run.position) for run in runs[first:last][-1:]]
    runs[first:last] = [run for run in (*before, new, *behind) if run.start < run.end]


def roll_forward(volume: Volume) -> list[Run]:
    """What was written since the map was stored, in the order of the blocks."""
    runs: list[Run] = []
    heads, number = [volume.head, volume.second_head], volume.next
    while extent := read_next(volume, heads, number):
        for fragment in extent.fragments:
            if not is_of_blocks(fragment):
                fragment.require(MAP_NODE <= fragment.kind <= CLONES, "kind")
                if fragment.kind == COPY_OF_DICTIONARY:
                    volume.copies[fragment.block, fragment.count] = fragment.position
                continue
            check_unit_of_blocks(fragment)
            end, place = fragment.block + fragment.count, fragment.position
            region = fragment.block // REGION if volume.regions else 0
            limit = volume.regions[region].blocks if region in volume.regions else volume.blocks
            known = region == 0 or region in volume.regions
            fragment.require(known and end - region * REGION <= limit, "blocks beyond the device")
            put_run(runs, Run(fragment.block, end, 0 if fragment.kind == ZEROS else place))
        number += 1
    check_opening(volume, heads, (number >> OPENING) + 1 << OPENING)
    return runs


def read_next(volume: Volume, heads: list[int], number: int) -> Extent | None:
    """The extent of a number, at whichever head it lies, which then goes on behind it."""
    for at, position in enumerate(heads):
        if extent := read_extent(volume, position, number) if position else None:
            heads[at] = extent.after
            return extent
    return None


def check_opening(volume: Volume, heads: list[int], number: int) -> None:
    """Where blocks were written after a later opening, its superblock is missed."""
    while extent := read_next(volume, heads, number):
        lost = any(map(is_of_blocks, extent.fragments))
        require(not lost, "superblock of a later opening", heads[0])
        number += 1


# The map, and what it leads to

def count_levels(blocks: int) -> int:
    levels = 1
    while FANOUT ** levels < blocks:
        levels += 1
    return levels


def read_map_node(volume: Volume, position: int, level: int, number: int) -> list[int]:
    apart = REGION // FANOUT ** (level + 1)  # none where a node leads to more than a region
    content = read_packed(read_known(volume, position, MAP_NODE, number, level + 1, apart))
    position, positions = 0, []
    for at in range(FANOUT):
        position += content.signed()
        content.require(0 <= position < 1 << 8 * PLACE_LENGTH, "position")
        first = (number * FANOUT + at) * FANOUT ** level
        inside = first // REGION in volume.regions or first < volume.blocks
        content.require(position == 0 or inside, "blocks beyond the device")
        positions.append(position * ALIGNMENT)
    content.finish()
    return positions


def list_dictionaries(volume: Volume) -> None:
    """Where those of the superblock lie, before the log says otherwise."""
    if volume.dictionaries == 0:
        return
    root = read_known(volume, volume.dictionaries, DICTIONARY_ROOT, 0, 1)
    places = read_places(root)
    root.require(len(places) % 2 == 0 and len(places) <= 2 * MOST_DICTIONARIES, "count of dictionaries")
    for at, place in enumerate(places):
        volume.copies[at // 2, at % 2 + 1] = place


def find_dictionary(volume: Volume, number: int) -> object:
    """Both copies are there, and the same."""
    if number not in volume.known:
        places = [volume.copies.get((number, copy), 0) for copy in (1, 2)]
        copies = [read_known(volume, place, COPY_OF_DICTIONARY, number, at + 1) for at, place in enumerate(places)]
        for fragment in copies:
            fragment.require(1 <= len(fragment.stored) <= LONGEST_DICTIONARY, "length")
            fragment.require(fragment.stored == copies[0].stored, "copies that differ")
        volume.known[number] = zstandard.ZstdCompressionDict(
            copies[0].stored, dict_type=zstandard.DICT_TYPE_FULLDICT)
    return volume.known[number]


def stored_places(volume: Volume, live: Counter, position: int, level: int,
                  number: int = 0) -> Iterator[tuple[int, int]]:
    """Block and position of each that the stored map has under a node; counts what it leads to."""
    clone = volume.regions.get(number * FANOUT ** (level + 1) // REGION)
    shared = clone.segments if clone else set()
    live[position >> volume.bits] += position >> volume.bits not in shared
    for at, below in enumerate(read_map_node(volume, position, level, number)):
        if below and level:
            yield from stored_places(volume, live, below, level - 1, number * FANOUT + at)
        elif below:
            live[below >> volume.bits] += below >> volume.bits not in shared
            yield number * FANOUT + at, below  # where the log says otherwise it may be gone


def has_block(runs: list[Run], block: int) -> bool:
    at = bisect_right(runs, block, key=lambda run: run.start) - 1
    return at >= 0 and block < runs[at].end


def all_places(volume: Volume, live: Counter) -> Iterator[tuple[int, int]]:
    """Block and position of each that is somewhere, in the order of the blocks."""
    runs = roll_forward(volume)
    places = ()
    if volume.map:
        levels = 4 if volume.regions else count_levels(volume.blocks)
        places = stored_places(volume, live, volume.map, levels - 1)
    stored = (place for place in places if not has_block(runs, place[0]))
    written = ((block, run.position) for run in runs if run.position
               for block in range(run.start, run.end))
    return heapq.merge(stored, written)


def filled_blocks(volume: Volume, places: Iterable[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    for block, position in places:
        content = read_device_block(volume, block, position)
        if any(content):
            yield block, content


# How full segments are

def read_usage_page(volume: Volume, position: int, number: int) -> list[int]:
    """How many blocks and nodes of each segment are still led to."""
    content, live = read_packed(read_known(volume, position, USAGE_PAGE, number, 1)), []
    for segment in range(number * FANOUT, (number + 1) * FANOUT):
        written, led_to = content.varint(), content.varint()
        content.require(led_to <= written, f"more in use than written in segment {segment}")
        content.require(written == 0 or 1 <= segment < volume.segments, "segment that is none")
        live.append(led_to)
    if content.at < len(content.data):
        # What is still to be packed: nothing that a reader needs.
        content.take(FANOUT // 8)
    content.finish()
    return live


def check_usage(volume: Volume, live: Counter) -> None:
    """Compares what the stored map leads to with what is said of it."""
    root, told = read_known(volume, volume.usage, USAGE_ROOT, 0, 1), Counter()
    for number, position in enumerate(read_places(root)):
        if position:
            counts = read_usage_page(volume, position, number)
            told.update({number * FANOUT + at: count for at, count in enumerate(counts) if count})
    for segment in sorted(live | told):
        root.require(live[segment] == told[segment], f"use of segment {segment}")


def run_line(blocks: Iterator[tuple[int, bytes]]) -> str:
    digest, numbers = hashlib.sha256(), []
    for number, content in blocks:
        digest.update(content)
        numbers[1:] = [number]
    return f"{numbers[0]} {numbers[-1] - numbers[0] + 1} {digest.hexdigest()}"


def device_lines(volume: Volume, places: Iterable[tuple[int, int]], start: int = 0) -> list[str]:
    numbered = enumerate((block - start, content) for block, content in filled_blocks(volume, places))
    # Neighbours are as far from their places in the order as each other.
    runs = groupby(numbered, key=lambda it: it[1][0] - it[0])
    lines = [run_line(block for _, block in run) for _, run in runs]
    return [f"size {volume.blocks * DEVICE_BLOCK}", *lines]


def volume_manifest(volume: Volume) -> str:
    """Reads and verifies everything."""
    live: Counter[int] = Counter()
    list_dictionaries(volume)
    snapshots = read_snapshots(volume)
    volume.regions = read_clones(volume, snapshots)
    places = all_places(volume, live)  # which reads the log
    lines = {region: device_lines(volume, ())[:1] for region in (0, *volume.regions)}
    if not volume.regions:
        lines[0] = device_lines(volume, places)
    for region, own in groupby(places, key=lambda it: it[0] // REGION):
        blocks = volume.regions[region].blocks if region else volume.blocks
        lines[region] = device_lines(replace(volume, blocks=blocks), own, region * REGION)
    for number, _ in sorted(volume.copies):
        find_dictionary(volume, number)
    check_usage(volume, live)
    told = lines[0]
    for snapshot in snapshots:
        told += snapshot_lines(volume, snapshot)
    for region, clone in volume.regions.items():
        size = f"size {clone.blocks * DEVICE_BLOCK}"
        told += [] if clone.gone else [f"clone {clone.name}", size, *lines[region][1:]]
    return "\n".join(told) + "\n"


@dataclass(frozen=True)
class Branch:
    """A clone."""
    name: str
    blocks: int
    segments: set[int]  # what lies there it shares
    gone: bool


def read_clones(volume: Volume, snapshots: list["Snapshot"]) -> dict[int, Branch]:
    if volume.clones == 0:
        return {}
    fragment, regions, names = read_known(volume, volume.clones, CLONES, 0, 1), {}, {it.name for it in snapshots}
    bases = {it.fragment.block: it.segments for it in snapshots}
    content = Cursor(fragment.stored, "clones", volume.clones + FRAGMENT)
    while content.at < len(content.data):
        name = read_name(content)
        content.varint()  # when
        region, blocks, base, first = (content.varint() for _ in range(4))
        gone = content.fixed(1)
        content.require(1 <= region <= MOST_REGIONS and region not in regions, "region")
        content.require(1 <= blocks <= REGION and gone <= 1 and first <= volume.next, "clone")
        content.require(base in bases and (gone or name not in names), "snapshot or name of a clone")
        regions[region] = Branch(name, blocks, bases[base], bool(gone))
        names |= {name} if not gone else set()
    fragment.require(regions != {}, "clones that are none")
    return regions


# What is kept of it as it was

@dataclass(frozen=True)
class Snapshot:
    fragment: Fragment
    name: str
    blocks: int
    map: int
    segments: set[int]


def read_places(root: Fragment) -> list[int]:
    """The positions that a root lists."""
    root.require(len(root.stored) % PLACE_LENGTH == 0, "length")
    starts = range(0, len(root.stored), PLACE_LENGTH)
    return [int.from_bytes(root.stored[at:at + PLACE_LENGTH], "little") * ALIGNMENT for at in starts]


def read_snapshots(volume: Volume) -> list[Snapshot]:
    if volume.snapshots == 0:
        return []
    root = read_known(volume, volume.snapshots, SNAPSHOT_ROOT, 0, 1)
    places = read_places(root)
    root.require(1 <= len(places) <= MOST_SNAPSHOTS, "count of snapshots")
    snapshots = [read_snapshot(volume, place) for place in places]
    numbers = [snapshot.fragment.block for snapshot in snapshots]
    root.require(numbers == sorted(set(numbers)), "order of snapshots")
    names = {snapshot.name for snapshot in snapshots}
    root.require(len(names) == len(snapshots), "names of snapshots")
    return snapshots


def read_snapshot(volume: Volume, position: int) -> Snapshot:
    fragment = read_fragment(volume, position)
    fragment.require(fragment.kind == SNAPSHOT and fragment.count in (1, 2), "kind and count")
    content = Cursor(fragment.stored, "snapshot", position + FRAGMENT)
    name = read_name(content)
    content.varint()  # when
    blocks, place, count = content.varint(), content.fixed(PLACE_LENGTH) * ALIGNMENT, content.varint()
    content.require(1 <= blocks <= 1 << 40, "length of the device")
    segments, end = set(), 0
    for _ in range(count):
        start = end + content.varint()
        end = start + content.varint()
        content.require(start < end <= volume.segments, "segments")
        segments.update(range(start, end))
    content.finish()
    return Snapshot(fragment, name, blocks, place, segments)


def read_name(content: Cursor) -> str:
    length = content.varint()
    content.require(1 <= length <= 255, "length of the name")
    try:
        name = content.take(length).decode()
    except UnicodeDecodeError:
        content.require(False, "name")
    content.require(not any(unicodedata.category(letter) == "Cc" for letter in name), "name")
    return name


def snapshot_lines(volume: Volume, snapshot: Snapshot) -> list[str]:
    device, live, places = replace(volume, blocks=snapshot.blocks, regions={}), Counter(), ()
    if snapshot.map:
        places = stored_places(device, live, snapshot.map, count_levels(device.blocks) - 1)
    lines = device_lines(device, places)
    snapshot.fragment.require(live.keys() <= snapshot.segments, "segments that are not held")
    return [f"snapshot {snapshot.name}", *lines]


def check_volume(path: Path) -> str | None:
    with path.open("rb") as file:
        same = volume_manifest(open_volume(file)).encode() == path.with_suffix(".blocks").read_bytes()
    return None if same else "another manifest"


# The manifest, and what is compared with it

def record_line(archive: Archive, record: Record) -> str:
    digest = target = mode = time = user = group = attributes = pieces = None
    if record.kind in (DATA, FILE, ITEM) and record.length <= LONGEST_HASHED:
        sha256 = hashlib.sha256()
        for piece in read_record(archive, record, 0, record.length):
            sha256.update(piece)
        digest = sha256.hexdigest()
    if record.kind == SYMLINK:
        target = record.target.hex()
    elif record.kind == HARDLINK:
        target = record.target
    elif record.kind in (CHARACTER_DEVICE, BLOCK_DEVICE):
        target = "{}:{}".format(*record.target)
    if record.metadata:
        of = record.metadata
        mode, time = f"{of.mode:04o}", f"{of.seconds}+{of.nanoseconds}"
        user, group = of.user, of.group
        attributes = ",".join(f"{name.hex() or '-'}={value.hex() or '-'}"
                              for name, value in of.attributes)
    if record.pieces:
        pieces = ",".join(f"{start}..{end}" for start, end in record.pieces)
    fields = (record.number, KINDS[record.kind], record.length, digest, record.name.hex(), mode,
              time, user, group, target, attributes, pieces, record.key.hex())
    return " ".join(["record", *("-" if it in (None, "") else str(it) for it in fields)])


def manifest(archive: Archive) -> str:
    """Reads and verifies everything."""
    lines = [f"content {archive.length} {check_content(archive)}"]
    lines += [record_line(archive, record) for record in all_records(archive)]
    return "\n".join(lines) + "\n"


def compare(path: Path) -> str | None:
    """What is wrong with how an archive is read whose manifest is known."""
    with path.open("rb") as file:
        archive = open_archive(file)
        if manifest(archive).encode() != path.with_suffix(".txt").read_bytes():
            return "another manifest"
        for number, record in enumerate(all_records(archive)):
            if record_by_number(archive, number) != record:
                return f"record {number} by its number"
            for name in filter(None, (record.name, record.key)):
                found = record_by_name(archive, name)
                # Items may share a name: the first one is found.
                before = found and found.kind == ITEM and name in (found.name, found.key)
                if found != record and not (before and found.number < number):
                    return f"record {number} by its name"
            if record_by_name(archive, record.name + b"\x01 that is not there"):
                return f"a name like that of record {number}"
        whole = b"".join(read_content(archive, 0, archive.length))
        chosen = random.Random(path.name)
        for _ in range(50):
            start, end = sorted(chosen.randint(0, len(whole)) for _ in range(2))
            if b"".join(read_content(archive, start, end)) != whole[start:end]:
                return f"content from {start} to {end}"
    return None


def any_manifest(file: BinaryIO) -> str:
    header = file.read(HEADER)
    if header[12:13] == bytes([EVENTS_FILE]):
        return events_manifest(open_events(file))
    if header[12:13] == bytes([VOLUME_FILE]):
        return volume_manifest(open_volume(file))
    return manifest(open_archive(file))


def refuse(path: Path) -> str | None:
    with path.open("rb") as file:
        try:
            any_manifest(file)
        except FormatError:
            return None
    return "was not refused"


def test_all(folder: str, tests: dict[str, Callable[[Path], str | None]]) -> int:
    passed = failed = 0
    paths = [(path, test) for which, test in tests.items() for path in Path(folder).glob(which)]
    for path, test in sorted(paths, key=lambda item: item[0]):
        try:
            wrong = test(path)
        except Exception as error:  # whatever it is, the other files are still to be tested
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            print(f"{path.name}: {wrong}")
        failed += wrong is not None
        passed += wrong is None
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


def main(arguments: list[str]) -> int:
    match arguments:
        case ["--check", folder]:
            return test_all(folder, {"*.fiche": compare, "streams/*.gz": check_index,
                                     "streams/inside*.lz4": check_lz4,
                                     "phrases/*.unit": check_phrases,
                                     "events/*.fiche": check_events,
                                     "volumes/*.fiche": check_volume})
        case ["--refuse", folder]:
            return test_all(folder, {"*.fiche": refuse, "volumes/*.fiche": refuse})
        case [name] if not name.startswith("-"):
            try:
                with open(name, "rb") as file:
                    sys.stdout.write(any_manifest(file))
            except (FormatError, OSError) as error:
                print(f"{name}: {error}", file=sys.stderr)
                return 1
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
