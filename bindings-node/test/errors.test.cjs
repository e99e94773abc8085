// Classes and codes are those of the project's table of errors.
const assert = require('node:assert/strict')
const { readFileSync } = require('node:fs')
const { join } = require('node:path')
const test = require('node:test')
const onelock = require('onelock')
const { toError } = require('../dist/errors.js')
const { native } = require('../dist/native.js')

/** The rows of the table: of TOML only what stands in it. */
function table() {
  const text = readFileSync(join(__dirname, '..', '..', 'tests', 'spec', 'errors.toml'), 'utf8')
  return text
    .split('[[error]]')
    .slice(1)
    .map((row) =>
      Object.fromEntries([...row.matchAll(/^(\w+) = (.*)$/gm)].map(([, key, value]) => [key, JSON.parse(value)])),
    )
}

test('every row of the table is a class, and nothing else is', () => {
  const rows = table()
  assert.ok(rows.length >= 17)
  const classes = new Set()
  for (const row of rows) {
    const error = toError({ kind: row.kind, message: 'm', tried: 't', detail: 'd', causes: ['c'], lock: 'l' })
    const name = row.python.endsWith('Error') ? row.python : `${row.python}Error`
    assert.equal(error.name, name)
    assert.equal(error.constructor, onelock[name])
    assert.equal(error.code, row.js)
    assert.equal(error.kind, row.kind)
    assert.equal(error.retryable, row.retryable)
    assert.equal(error instanceof onelock.LockNotAcquiredError, row.not_acquired)
    assert.ok(error instanceof onelock.OnelockError && error instanceof Error)
    assert.deepEqual([error.message, error.tried, error.detail, error.causes, error.lock], ['m', 't', 'd', ['c'], 'l'])
    classes.add(name)
  }
  const exported = Object.keys(onelock).filter((name) => name.endsWith('Error'))
  assert.deepEqual(exported.sort(), [...classes, 'LockNotAcquiredError', 'OnelockError'].sort())
})

test('the native module has the same table', () => {
  const rows = table()
  assert.deepEqual(
    native
      .kinds()
      .map(({ kind, number, notAcquired, retryable, todo }) => ({ kind, number, notAcquired, retryable, todo })),
    rows.map((row) => ({
      kind: row.kind,
      number: row.number,
      notAcquired: row.not_acquired,
      retryable: row.retryable,
      todo: row.todo,
    })),
  )
})

test('a stack shows who called', async () => {
  const client = new onelock.Client('memory://')
  const lease = await client.lock('x').acquire()
  async function theCaller() {
    await client.lock('x').acquire({ timeout: 0 })
  }
  const error = await theCaller().catch((thrown) => thrown)
  assert.match(error.stack, /theCaller/)
  assert.match(error.message, /^try_acquire "x": .*\(Busy: .*\)$/)
  await lease.release()
})
