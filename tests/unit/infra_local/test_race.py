import asyncio

import pytest

from infra.local.race import race


async def test_the_first_to_end_gives_the_result_and_the_others_have_ended() -> None:
    ended: list[str] = []

    async def forever() -> str:
        try:
            return await asyncio.Future[str]()
        finally:
            await asyncio.sleep(0)
            ended.append("forever")

    async def soon() -> str:
        await asyncio.sleep(0)
        return "done"

    assert await race(forever(), soon()) == "done"
    assert ended == ["forever"]


async def test_of_several_that_end_at_once_the_first_named_counts() -> None:
    async def fails(name: str) -> None:
        raise ValueError(name)

    with pytest.raises(ValueError, match="cause"):
        await race(fails("cause"), fails("symptom"))
