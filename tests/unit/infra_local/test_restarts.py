from infra.local.restarts import Deaths, on_death


def test_a_first_death_is_followed_by_a_quick_restart_and_later_ones_by_slower_ones() -> None:
    deaths, delays = Deaths(), []
    for at_s in (0.0, 1.0, 2.0, 3.0):
        deaths, verdict = on_death(deaths, at_s)
        delays.append(verdict.restart_in_s)
    assert delays == [0.2, 0.8, 3.2, 8.0]


def test_five_deaths_in_a_minute_end_it_with_the_reason() -> None:
    deaths = Deaths(at_s=(10.0, 20.0, 30.0, 40.0))
    _, verdict = on_death(deaths, 50.0)
    assert verdict.restart_in_s is None
    assert verdict.reason == "died 5 times in 60 s"


def test_deaths_long_ago_do_not_count() -> None:
    _, verdict = on_death(Deaths(at_s=(0.0, 1.0, 2.0, 3.0)), 100.0)
    assert verdict.restart_in_s == 0.2


def test_what_the_fleet_can_do_without_rests_and_is_tried_again() -> None:
    deaths = Deaths(at_s=(10.0, 20.0, 30.0, 40.0))
    deaths, verdict = on_death(deaths, 50.0, vital=False)
    assert (verdict.restart_in_s, verdict.reason) == (60.0, "died 5 times in 60 s")
    assert on_death(deaths, 120.0, vital=False)[1].restart_in_s == 0.2
