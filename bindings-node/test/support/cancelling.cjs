// How the tests of cancelling look at what is left of an acquire.
const assert = require('node:assert/strict')
const { until } = require('./server.cjs')

/** What `promise` rejects with. */
const reasonOf = (promise) =>
  promise.then(
    () => assert.fail('it resolved'),
    (reason) => reason,
  )

const isClean = (client) => {
  const { held, cleaning, waiting } = client.stats()
  return held + cleaning + waiting === 0
}

/** What asks `at.server`, the server of the running test. */
function lookAt(at) {
  const isFree = async (name) => (await at.server.send('EXISTS', name)) === 0
  /** An acquire that was stopped in flight is undone when the server has answered it, and until then it is nothing yet. */
  const undone = (name, ...clients) =>
    until(async () => clients.every(isClean) && (await isFree(name)) && clients.every(isClean), 'the undo')
  return { isFree, undone }
}

module.exports = { isClean, lookAt, reasonOf }
