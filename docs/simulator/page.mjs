// What is chosen, which step is shown, and the address that says both.
import { drawDiagram } from './diagram.mjs'
import { loadEngine } from './engine.mjs'
import { millis } from './layout.mjs'
import { momentOf } from './moment.mjs'

const at = (id) => document.getElementById(id)
const SEED_MAX = 2n ** 64n - 2n
const page = { engine: null, story: 0, bug: -1, seed: 1n, step: 0, trace: null, show: null, player: null, searching: 0 }

/** A seed as it was typed, or null. */
function seedOf(text) {
  if (!/^[0-9]{1,20}$/.test(text.trim())) return null
  const seed = BigInt(text.trim())
  return seed <= SEED_MAX ? seed : null
}

function fillStories() {
  for (const story of page.engine.stories) at('story').append(new Option(story.title, story.name))
}

function fillBugs() {
  const { bugs } = page.engine.stories[page.story]
  at('bug').replaceChildren(new Option('none: the library as it is', ''))
  for (const bug of bugs) at('bug').append(new Option(bug.text, bug.name))
  at('bug').value = bugs[page.bug]?.name ?? ''
  at('search').disabled = page.bug < 0
  at('about').textContent = page.engine.stories[page.story].about
}

function address() {
  const words = new URLSearchParams({ story: page.engine.stories[page.story].name, seed: String(page.seed) })
  if (page.bug >= 0) words.set('bug', page.engine.stories[page.story].bugs[page.bug].name)
  words.set('step', String(page.step))
  return `#${words}`
}

function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1))
  const { stories } = page.engine
  page.story = Math.max(
    stories.findIndex((story) => story.name === words.get('story')),
    0,
  )
  page.bug = stories[page.story].bugs.findIndex((bug) => bug.name === words.get('bug'))
  page.seed = seedOf(words.get('seed') ?? '') ?? 1n
  return Number.parseInt(words.get('step') ?? '', 10) || 0
}

/** Plays what is chosen, and draws it. */
function playChosen(step) {
  stopPlaying()
  page.searching += 1
  at('story').value = page.engine.stories[page.story].name
  at('seed').value = String(page.seed)
  fillBugs()
  try {
    page.trace = JSON.parse(page.engine.play(page.story, page.seed, page.bug))
  } catch (error) {
    say(`The simulator stopped: ${error.message}`, true)
    return
  }
  tellVerdict()
  fillSteps()
  draw()
  at('scrub').max = String(page.trace.steps.length - 1)
  showStep(step)
}

function say(text, broken = false) {
  at('verdict').textContent = text
  at('verdict').classList.toggle('broken', broken)
}

function tellVerdict() {
  const { broken, cut } = page.trace
  if (broken) say(`Violated: ${broken.property}: ${broken.detail}.`, true)
  else say(`No property is violated.${cut ? ' The schedule is long: its end is not shown.' : ''}`)
}

function fillSteps() {
  const items = page.trace.steps.map((step, index) => {
    const item = document.createElement('li')
    const time = document.createElement('time')
    const text = document.createElement('span')
    time.textContent = millis(step.at)
    text.textContent = step.text
    text.className = step.what.replace(' ', '-')
    item.dataset.step = String(index)
    item.tabIndex = -1
    item.append(time, text)
    return item
  })
  at('steps').replaceChildren(...items)
}

function draw() {
  const { trace } = page
  const width = Math.max(at('frame').clientWidth, 280)
  page.show = drawDiagram(at('diagram'), at('lanes'), trace, width)
  const lost = trace.messages.filter((message) => message.fate === 'lost').length
  const refused = trace.writes.filter((write) => !write.admitted).length
  at('summary').textContent =
    `${trace.clients.length} clients, ${trace.servers.length === 1 ? 'one server' : `${trace.servers.length} servers`}, ` +
    `${trace.messages.length} messages (${lost} lost), ${trace.leases.length} leases, ${trace.writes.length} writes ` +
    `(${refused} turned away), ${millis(trace.end)}. The list of steps tells the same in words.`
}

function showStep(step) {
  const { steps } = page.trace
  page.step = Math.min(Math.max(step, 0), steps.length - 1)
  const { at: time, text } = steps[page.step]
  at('now').textContent = `${page.step + 1} of ${steps.length}, ${millis(time)}: ${text}`
  at('scrub').value = String(page.step)
  at('scrub').setAttribute('aria-valuetext', at('now').textContent)
  const y = page.show(page.step)
  const frame = at('frame')
  if (y < frame.scrollTop + 60 || y > frame.scrollTop + frame.clientHeight - 80) {
    frame.scrollTop = y - frame.clientHeight / 2
  }
  markItem()
  at('state').replaceChildren(...momentOf(page.trace, time, page.step).map(row))
  history.replaceState(null, '', address())
}

function markItem() {
  const list = at('steps')
  const before = list.querySelector('[aria-current]')
  before?.removeAttribute('aria-current')
  if (before) before.tabIndex = -1
  const item = list.children[page.step]
  item.setAttribute('aria-current', 'step')
  item.tabIndex = 0
  const [top, bottom] = [item.offsetTop - list.offsetTop, item.offsetTop - list.offsetTop + item.offsetHeight]
  if (top < list.scrollTop || bottom > list.scrollTop + list.clientHeight) list.scrollTop = top - list.clientHeight / 2
  if (list.contains(document.activeElement)) item.focus({ preventScroll: true })
}

function row([name, value]) {
  const line = document.createElement('tr')
  const head = document.createElement('th')
  const cell = document.createElement('td')
  head.scope = 'row'
  head.textContent = name
  cell.textContent = value
  line.append(head, cell)
  return line
}

const TROUBLE = new Set(['lost', 'fault', 'stopped', 'refused', 'limit', 'over', 'arrived', 'violated'])

function toTrouble() {
  const { steps } = page.trace
  const next = steps.findIndex((step, index) => index > page.step && TROUBLE.has(step.what))
  showStep(next < 0 ? steps.length - 1 : next)
}

function stopPlaying() {
  clearInterval(page.player)
  page.player = null
  at('play').textContent = 'Play'
}

function togglePlaying() {
  if (page.player !== null) return stopPlaying()
  if (page.step === page.trace.steps.length - 1) showStep(0)
  at('play').textContent = 'Pause'
  page.player = setInterval(() => {
    if (page.step >= page.trace.steps.length - 1) return stopPlaying()
    showStep(page.step + 1)
  }, 350)
}

/** Looks for a seed that breaks the bug, a few at a time, so that the page stays alive. */
function searchSeed() {
  page.searching += 1
  const mine = page.searching
  let first = page.seed + 1n
  let left = 4000
  const look = () => {
    if (mine !== page.searching) return
    const found = page.engine.search(page.story, page.bug, first, 25)
    if (found !== null) {
      page.seed = found
      playChosen(Number.MAX_SAFE_INTEGER)
      return
    }
    ;[first, left] = [first + 25n, left - 25]
    if (left <= 0 || first > SEED_MAX) return say('No seed of the next 4000 breaks it. Try another one to begin with.')
    say(`Looking: seed ${first} ...`)
    setTimeout(look, 0)
  }
  look()
}

async function share() {
  const text = location.href
  try {
    await navigator.clipboard.writeText(text)
    say('The address is copied: story, seed, bug and step are in it.')
  } catch {
    say(`Copy this address: ${text}`)
  }
}

const KEYS = {
  ArrowRight: () => showStep(page.step + 1),
  ArrowDown: () => showStep(page.step + 1),
  ArrowLeft: () => showStep(page.step - 1),
  ArrowUp: () => showStep(page.step - 1),
  PageDown: () => showStep(page.step + 10),
  PageUp: () => showStep(page.step - 10),
  Home: () => showStep(0),
  End: () => showStep(page.trace.steps.length - 1),
}

function onKey(event) {
  const act = event.altKey || event.ctrlKey || event.metaKey ? undefined : KEYS[event.key]
  if (!act) return
  event.preventDefault()
  act()
}

function listen() {
  const on = (id, what, act) => at(id).addEventListener(what, act)
  on('choice', 'submit', (event) => event.preventDefault())
  on('story', 'change', () => {
    ;[page.story, page.bug] = [at('story').selectedIndex, -1]
    playChosen(0)
  })
  on('bug', 'change', () => {
    page.bug = at('bug').selectedIndex - 1
    playChosen(0)
  })
  on('seed', 'change', () => {
    const seed = seedOf(at('seed').value)
    at('seed').setAttribute('aria-invalid', String(seed === null))
    if (seed === null) return say(`A seed is a whole number up to ${SEED_MAX}.`, true)
    page.seed = seed
    playChosen(0)
  })
  on('next-seed', 'click', () => {
    page.seed = page.seed < SEED_MAX ? page.seed + 1n : 0n
    playChosen(0)
  })
  on('search', 'click', searchSeed)
  on('share', 'click', share)
  on('first', 'click', () => showStep(0))
  on('back', 'click', () => showStep(page.step - 1))
  on('forward', 'click', () => showStep(page.step + 1))
  on('last', 'click', () => showStep(page.trace.steps.length - 1))
  on('play', 'click', togglePlaying)
  on('to-trouble', 'click', toTrouble)
  on('scrub', 'input', () => showStep(Number(at('scrub').value)))
  on('frame', 'keydown', onKey)
  on('steps', 'keydown', onKey)
  on('steps', 'click', (event) => {
    const item = event.target.closest('li')
    if (item) showStep(Number(item.dataset.step))
  })
  on('diagram', 'click', (event) => {
    const y = event.clientY - at('diagram').getBoundingClientRect().top
    const next = page.trace.steps.findIndex((_, index) => page.show(index) >= y - 2)
    showStep(next < 0 ? page.trace.steps.length - 1 : next)
  })
  addEventListener('hashchange', () => playChosen(readAddress()))
  let width = 0
  new ResizeObserver(() => {
    if (!page.trace || at('frame').clientWidth === width) return
    width = at('frame').clientWidth
    draw()
    page.show(page.step)
  }).observe(at('frame'))
}

async function begin() {
  page.engine = await loadEngine(at('engine').textContent.trim())
  fillStories()
  listen()
  playChosen(readAddress())
  document.documentElement.dataset.ready = 'yes'
}

begin().catch((error) => say(`The simulator does not run here: ${error.message}`, true))
