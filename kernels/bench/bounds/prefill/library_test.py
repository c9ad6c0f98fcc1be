import ctypes
import pathlib


def test_the_library_exports_its_variants():
    library = ctypes.CDLL(str(pathlib.Path(__file__).with_name("libprefill.so").absolute()))
    library.prefill_name.restype = ctypes.c_char_p
    names = [library.prefill_name(index) for index in range(library.prefill_instances())]
    assert b"paged gate" in names
    assert len(set(names)) == len(names)
