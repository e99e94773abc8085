// A transfer between two accounts, which are locked together. Many transfers run at once, in both directions: since all of
// them take the locks in one order, none waits for another in a circle. The address is in $ONELOCK_URL.
import { Client } from 'onelock'

// really rows of a database, each with the highest fencing token that wrote it
const balances = { alice: 100, bob: 100, carol: 100 }
const tokens = { alice: 0, bob: 0, carol: 0 }

const client = await Client.connect()

function transfer(from, to, amount) {
  const accounts = [from, to]
  const keys = accounts.map((account) => `example:account:${account}`)
  return client.multiLock(keys).using({ timeout: 30_000 }, async (_signal, lease) => {
    if (balances[from] < amount) return false
    for (const [at, account] of accounts.entries()) {
      // the database does this check: UPDATE ... WHERE fence <= :token
      const token = lease.fencingTokens.get(keys[at])
      if (token <= tokens[account]) throw new Error('a later transfer has been here')
      tokens[account] = token
    }
    balances[from] -= amount
    balances[to] += amount
    return true
  })
}

const names = Object.keys(balances)
const transfers = Array.from({ length: 30 }, (_, i) => {
  return transfer(names[i % 3], names[(i + 1 + Math.floor(i / 15)) % 3], 5)
})
const made = (await Promise.all(transfers)).filter(Boolean).length
const together = Object.values(balances).reduce((sum, balance) => sum + balance)
console.log(`${made} transfers, together ${together}`)
await client.close()
