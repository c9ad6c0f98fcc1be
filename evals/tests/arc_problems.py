"""Made-up problems in ARC's form, for the tests of what is asked of a copy."""

import json
import pathlib


def arc(count: int, start: int = 0) -> list[dict]:
    return [
        {
            "id": str(i),
            "question": f"What is {i} + 1?",
            "choices": {"text": [str(i), str(i + 1), str(i + 2)], "label": ["A", "B", "C"]},
            "answerKey": "B",
        }
        for i in range(start, start + count)
    ]


def write(path: pathlib.Path, rows: list[dict]) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
