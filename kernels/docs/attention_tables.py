"""Tables of the attention kernels' times, from results/h200/kernels.json."""

from document import results, table
from documents import markdown


def _rows(kind: str) -> list[dict]:
    return [row for row in results("kernels", "results/h200")["rows"] if row["kind"] == kind]


def _kernels(rows: list[dict]) -> list[str]:
    return list(dict.fromkeys(row["kernel"] for row in rows))


def _cell(row: dict | None, time: bool) -> str:
    if row is None:
        return "-"
    return f"{row['ours_us']:.1f} ({row['ratio']:.2f})" if time else f"{row['ratio']:.2f}"


@table("attention prefill")
def attention_prefill() -> str:
    rows = _rows("prefill")
    kernels = _kernels(rows)
    shapes: dict[tuple, dict[str, dict]] = {}
    for row in rows:
        shape = (row["B"], row["T_q"], row["ctx"], f"{row['H']}/{row['H_kv']}")
        shapes.setdefault(shape, {})[row["kernel"]] = row
    return markdown(
        ["B", "T_q", "ctx", "heads", "FA3, us", *(f"`{kernel}`, us (ratio)" for kernel in kernels)],
        ([*shape, f"{next(iter(found.values()))['fa3_us']:.1f}",
          *(_cell(found.get(kernel), time=True) for kernel in kernels)]
         for shape, found in shapes.items()))


@table("attention decode")
def attention_decode() -> str:
    rows = _rows("decode")
    columns = dict.fromkeys((row["kernel"], row["zeros"]) for row in rows)
    shapes: dict[tuple, dict[tuple, dict]] = {}
    for row in rows:
        shapes.setdefault((row["B"], row["ctx"]), {})[row["kernel"], row["zeros"]] = row
    return markdown(
        ["B", "ctx", "FA3, us", *(f"`{kernel}` {zeros:.0%}" for kernel, zeros in columns)],
        ([*shape, f"{next(iter(found.values()))['fa3_us']:.1f}",
          *(_cell(found.get(column), time=False) for column in columns)]
         for shape, found in shapes.items()))
