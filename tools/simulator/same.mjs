// WebAssembly and the native program say the same of each schedule, to the last letter: same.mjs PAGE.html PROGRAM
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { loadEngine } from '../../docs/simulator/engine.mjs'
import { storiesOf, tracesOf } from './native.mjs'

const [page, program] = process.argv.slice(2)
const letters = readFileSync(page, 'utf8').match(/<script id="engine"[^>]*>([^<]*)</)[1]
const engine = await loadEngine(letters)
assert.deepEqual(engine.stories, storiesOf(program))

const schedules = engine.stories.flatMap((story, index) => {
  const bugs = [-1, ...story.bugs.keys()]
  const seeds = [1n, 2n, 3n, 2n ** 63n + 5n, 2n ** 64n - 2n]
  return bugs.flatMap((bug) =>
    (bug < 0 ? seeds : seeds.slice(1, 2)).map((seed) => ({
      index,
      number: bug,
      story: story.name,
      seed,
      bug: story.bugs[bug]?.name,
    })),
  )
})
const expected = tracesOf(program, schedules)
let [broken, steps] = [0, 0]
for (const [place, { index, number, story, seed, bug }] of schedules.entries()) {
  const trace = engine.play(index, seed, number)
  // no diff of the whole: it would be megabytes
  assert.ok(trace === expected[place], `${story} ${seed} ${bug ?? 'without a bug'} is something else in WebAssembly`)
  const parsed = JSON.parse(trace)
  broken += parsed.broken === null ? 0 : 1
  steps += parsed.steps.length
  assert.ok(bug !== undefined || parsed.broken === null, `${story} ${seed}: ${parsed.broken?.detail}`)
}
assert.ok(broken > 15 && steps > 20_000, `${broken} broken, ${steps} steps`)

// a search finds what the native program finds
const story = engine.stories.findIndex(({ name }) => name === 'redlock')
const bug = engine.stories[story].bugs.findIndex(({ name }) => name === 'NoQuarantine')
const seed = engine.search(story, bug, 1n, 500)
assert.notEqual(seed, null)
const [first, before] = tracesOf(
  program,
  [seed, seed - 1n].map((number) => ({ story: 'redlock', seed: number, bug: 'NoQuarantine' })),
)
assert.notEqual(JSON.parse(first).broken, null)
assert.equal(JSON.parse(before).broken, null)
assert.equal(engine.search(story, bug, 1n, 1), null)
console.log(
  `simulator: ${schedules.length} schedules are the same in WebAssembly, ${broken} of them with a bug that is caught`,
)
