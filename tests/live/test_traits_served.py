"""A persona's traits in one session, over real HTTP: changed on one server, told by another."""

from tests.mock_model import ModelServer
from tests.servers import Server


async def test_traits_that_a_host_changes_on_one_server_are_told_by_the_other(
    pair: tuple[Server, Server], model: ModelServer
) -> None:
    one, other = pair
    tutor = {"persona_id": "tutor"}
    there = "/v1/sessions/traits-1/traits"
    changed = await one.client.patch(there, json={**tutor, "traits": {"patience": 0.1, "humor": 1}})
    back = await one.client.patch(there, json={**tutor, "traits": {"humor": None}})
    refused = await one.client.patch(there, json={**tutor, "traits": {"greed": 1}})
    nobody = await one.client.get(there, params={"persona_id": "nobody"})

    assert changed.json() == {
        "session_id": "traits-1",
        "persona_id": "tutor",
        "traits": {"humor": 1.0, "patience": 0.1},
        "changed": ["humor", "patience"],
    }
    assert await other.get(there, **tutor) == back.json()
    assert back.json()["traits"] == {"humor": 0.3, "patience": 0.1}
    assert (refused.status_code, refused.json()["code"]) == (422, "SYS_VALIDATION_ERROR")
    assert (nobody.status_code, nobody.json()["code"]) == (404, "GMI_PERSONA_NOT_FOUND")

    await other.turn("traits-1", "Teach me.", **tutor)
    await one.turn("traits-2", "Teach me.", **tutor)
    told = [request["body"]["messages"][0]["content"] for request in await model.requests(2)]
    assert ["patience 0.1" in text for text in told] == [True, False]
    assert ["patience 0.9" in text for text in told] == [False, True]
