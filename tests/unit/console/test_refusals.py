from services.console.core.refusals import Refusal, told
from shared.messages.adapters import Defect


def test_a_single_defect_is_said_once() -> None:
    refusal = Refusal(message="bias is set.", defects=(Defect(code="bias", message="bias is set."),))
    assert told(refusal) == "bias is set."


def test_defects_of_one_kind_become_a_number_after_the_fifth() -> None:
    alike = [Defect(code="shape", message=f"tensor {at} is wrong.") for at in range(30)]
    defects = (*alike[:1], Defect(code="bias", message="bias is set."), *alike[1:])
    lines = told(Refusal(message="tensor 0 is wrong. (and 30 more)", defects=defects)).splitlines()
    assert lines[1:] == [
        *(f"  shape: tensor {at} is wrong." for at in range(5)),
        "  shape: … and 25 more of this kind",
        "  bias: bias is set.",
    ]


def test_five_of_a_kind_are_all_told() -> None:
    alike = tuple(Defect(code="shape", message=f"tensor {at} is wrong.") for at in range(5))
    assert len(told(Refusal(message="", defects=alike)).splitlines()) == 6
