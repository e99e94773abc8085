"""A transfer between two accounts, which are locked together.

Many transfers run at once, in both directions: since all of them take the locks in one order, none waits for another in a
circle. The address is in $ONELOCK_URL.
"""

from concurrent.futures import ThreadPoolExecutor

from onelock import Client

# really rows of a database, each with the highest fencing token that wrote it
balances = {"alice": 100, "bob": 100, "carol": 100}
tokens = dict.fromkeys(balances, 0)


def transfer(client: Client, source: str, target: str, amount: int) -> bool:
    accounts = {f"example:account:{name}": name for name in (source, target)}
    with client.multi_lock(*accounts, timeout=30) as lease:
        if balances[source] < amount:
            return False
        for key, token in lease.fencing_tokens.items():
            # the database does this check: UPDATE ... WHERE fence <= :token
            name = accounts[str(key)]
            assert token is not None
            assert token > tokens[name]
            tokens[name] = token
        balances[source] -= amount
        balances[target] += amount
        return True


def main() -> None:
    names = list(balances)
    with Client() as client, ThreadPoolExecutor(8) as threads:
        transfers = [threads.submit(transfer, client, names[i % 3], names[(i + 1 + i // 15) % 3], 5) for i in range(30)]
        made = sum(future.result() for future in transfers)
    print(f"{made} transfers, together {sum(balances.values())}")


if __name__ == "__main__":
    main()
