// The defaults that the documentation names are those of the project's table.
const assert = require('node:assert/strict')
const { readFileSync } = require('node:fs')
const { join } = require('node:path')
const test = require('node:test')

test('defaults in the documentation', () => {
  const toml = readFileSync(join(__dirname, '..', '..', 'tests', 'spec', 'defaults.toml'), 'utf8')
  const table = new Map([...toml.matchAll(/^(\w+) = ([^\s#]+)/gm)].map(([, key, value]) => [key, JSON.parse(value)]))
  const source = readFileSync(join(__dirname, '..', 'ts', 'options.ts'), 'utf8')
  const documented = [...source.matchAll(/Default:\s+(?:\*\s+)?`?([\w.]+)`?[^/]*\*\/\s+(\w+)\?:/g)]
  let compared = 0
  for (const [, told, name] of documented) {
    const key = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
    const value = table.get(key) ?? table.get(`${key}_ms`)
    if (value === undefined) continue
    // 0 is no limit where the text says so
    const wanted = told === 'no' ? 0 : told.replace(/\.$/, '')
    assert.equal(String(wanted), String(value), `${name}: the documentation says ${told}`)
    compared += 1
  }
  assert.ok(compared >= 12, `only ${compared} were found`)
})

test('options of several servers reach the core, which refuses what makes no sense', () => {
  const { Client } = require('onelock')
  const refused = (options, word) =>
    assert.throws(() => new Client('redis://h', options), { code: 'ERR_ONELOCK_INVALID_ARGUMENT', message: word })
  refused({ nodeTimeout: 0 }, /node_timeout/)
  refused({ quarantine: 1e12 }, /quarantine/)
  refused({ replicaTimeout: 0 }, /replica_timeout/)
  refused({ minReplicas: 1.5 }, /minReplicas must be a whole number/)
  refused({ notify: 'loud' }, /notify must be 'auto'/)
  const secret = 'hunter2\ud800'
  assert.throws(
    () => new Client('redis://h', { sentinelPassword: secret }),
    (error) => !error.message.includes('hunter2'),
  )
  new Client('redis+sentinel://h/group', { sentinelUsername: 'u', sentinelPassword: 'p', sentinelTls: true })
  new Client('redis+cluster://h', { notify: 'both', minReplicas: 2 })
})
