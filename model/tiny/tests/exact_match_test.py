"""How an answer is read and scored."""

import pytest
from asynct_tiny.exact_match import final_answer, score
from asynct_tiny.problems import Problem


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (" 1 + 2 = 3\n#### 3", "3"),
        (" #### 3\n\nQuestion: 4?\nAnswer: #### 5", "3"),
        (" #### -7", "-7"),
        (" 1 + 2 = 3", None),
        ("", None),
        ("####3", None),
    ],
)
def test_final_answer_is_the_first_after_the_mark(text, answer):
    assert final_answer(text) == answer


def test_score_is_the_share_of_right_final_answers():
    asked = [Problem("?", "1 + 2 = 3\n#### 3")] * 4
    assert score(asked, [" #### 3", " 9 - 9 = 0\n#### 3", " #### 33", " 3"]) == 0.5


def test_score_wants_one_text_a_problem():
    with pytest.raises(ValueError):
        score([Problem("?", "#### 3")], [])
