// The options are those of the project's table, and reach the core.
const assert = require('node:assert/strict')
const { readFileSync } = require('node:fs')
const { join } = require('node:path')
const test = require('node:test')
const { Client } = require('onelock')

const TABLE = readFileSync(join(__dirname, '..', '..', 'tests', 'spec', 'options.toml'), 'utf8')
const camel = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase())

/** The names in the table, of all options or of those that a lock may set. */
function named(onLock) {
  const entries = TABLE.split('\n[[option]]\n')
    .slice(1)
    .filter((entry) => !onLock || /^lock = true$/m.test(entry))
  const names = entries.map((entry) => /^name = "(\w+)"$/m.exec(entry)[1])
  return names.flatMap((name) => (name === 'client_certificate' ? ['certFile', 'keyFile'] : [camel(name)]))
}

/** The names that the refusal of a wrong one lists. */
function listed(refused) {
  try {
    refused({ nonsense: 1 })
  } catch (error) {
    return /there are: ([\w, ]+)/.exec(error.message)[1].trim().split(', ')
  }
  return []
}

test('a client and a lock have the options of the table', () => {
  assert.deepEqual(listed((options) => new Client('memory://', options)).sort(), named(false).sort())
  const client = new Client('memory://')
  const own = ['owner', 'renewEvery']
  assert.deepEqual(listed((options) => client.lock('name', options)).sort(), [...named(true), ...own].sort())
})

test('options of several servers reach the core, which refuses what makes no sense', () => {
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
