// The page in a headless browser: it draws what the native program says, can be used with the keyboard and read aloud, and
// loads nothing: page.mjs PAGE.html PROGRAM BROWSER [FOLDER for pictures]
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { openBrowser } from './browser.mjs'
import { tracesOf } from './native.mjs'

const [page, program, browser, pictures] = process.argv.slice(2)
const WIDTHS = { phone: [390, 844], desktop: [1280, 900] }
const SCHEDULES = [
  { story: 'lost-reply', seed: '3' },
  { story: 'lost-reply', seed: '1', bug: 'ReleaseForgotten' },
  { story: 'frozen-holder', seed: '2' },
  { story: 'late-copies', seed: '1' },
  { story: 'clocks', seed: '5' },
  { story: 'forgetful-server', seed: '2', bug: 'CountingFence' },
  { story: 'fair-queue', seed: '1' },
  { story: 'fair-queue', seed: '1', bug: 'DeadGranted' },
  { story: 'several-locks', seed: '1', bug: 'HalfTaken' },
  { story: 'redlock', seed: '1' },
  { story: 'redlock', seed: '34', bug: 'NoQuarantine' },
  { story: 'tests-plain', seed: '7' },
  { story: 'tests-redlock', seed: '2' },
]
const traces = tracesOf(program, SCHEDULES).map((trace) => JSON.parse(trace))
const tab = await openBrowser(browser)
const [errors, requests] = [[], []]
tab.listen(({ method, params }) => {
  if (method === 'Runtime.exceptionThrown') errors.push(params.exceptionDetails.exception?.description)
  if (method === 'Log.entryAdded' && params.entry.level === 'error') errors.push(params.entry.text)
  if (method === 'Network.requestWillBeSent') requests.push(params.request.url)
})
for (const domain of ['Runtime', 'Log', 'Page', 'Network', 'Accessibility']) await tab.tab(`${domain}.enable`)

async function open({ story, seed, bug }, step = 0) {
  const words = new URLSearchParams({ story, seed, ...(bug && { bug }), step })
  await tab.tab('Page.navigate', { url: 'about:blank' })
  await tab.tab('Page.navigate', { url: `${pathToFileURL(page)}#${words}` })
  await tab.until(`document.documentElement?.dataset.ready === "yes"`)
}

/** What the page shows, counted by what is drawn. */
const SEEN = `(() => {
    const texts = (what) => [...document.querySelectorAll(what)].map((node) => node.textContent);
    const count = (what) => document.querySelectorAll("#diagram " + what).length;
    const inside = (node) => node.getBoundingClientRect().right <= innerWidth + 1;
    return {
        steps: texts("#steps li span"), times: texts("#steps time"), verdict: document.getElementById("verdict").textContent,
        now: document.getElementById("now").textContent, address: location.hash,
        messages: count("line.message"), lost: count("line.message.lost"), late: count("line.message.late"),
        copies: count("line.message.copy"), leases: count(".lease"), keys: count(".key"), notches: count(".notch"),
        frozen: count(".frozen"), down: count(".down"), admitted: count(".admitted"), refused: count(".writing.refused"),
        lanes: document.querySelectorAll("#lanes span").length,
        inside: [...document.querySelectorAll("#lanes span, button, select, input, #steps, #frame")].every(inside),
        wide: document.documentElement.scrollWidth - innerWidth,
    };
})()`

function compare(seen, trace) {
  const count = (items, test) => items.filter(test).length
  assert.deepEqual(
    seen.steps,
    trace.steps.map((step) => step.text),
  )
  assert.deepEqual(
    seen.times,
    trace.steps.map((step) => `${(step.at / 1e6).toFixed(1)} ms`),
  )
  assert.equal(seen.messages, trace.messages.length)
  assert.equal(
    seen.lost,
    count(trace.messages, (message) => message.fate === 'lost'),
  )
  assert.equal(
    seen.late,
    count(trace.messages, (message) => message.late),
  )
  assert.equal(
    seen.copies,
    count(trace.messages, (message) => message.way === 'copy'),
  )
  assert.equal(seen.leases, trace.leases.length)
  assert.equal(
    seen.notches,
    trace.leases.reduce((sum, lease) => sum + lease.deadlines.length - 1, 0),
  )
  assert.equal(seen.keys, trace.keys.length)
  assert.equal(
    seen.frozen,
    count(trace.stops, (stop) => stop.what === 'frozen'),
  )
  assert.equal(
    seen.down,
    count(trace.stops, (stop) => stop.what === 'down'),
  )
  assert.equal(
    seen.admitted,
    count(trace.writes, (write) => write.admitted),
  )
  assert.equal(
    seen.refused,
    count(trace.writes, (write) => !write.admitted),
  )
  assert.equal(seen.lanes, trace.clients.length + trace.servers.length + 1)
  const verdict =
    trace.broken === null ? 'No property is violated.' : `Violated: ${trace.broken.property}: ${trace.broken.detail}.`
  assert.ok(seen.verdict.startsWith(verdict), seen.verdict)
  assert.ok(seen.inside && seen.wide <= 0, `something is wider than the window: ${seen.wide}`)
}

async function press(key) {
  const text = key === 'Enter' ? { text: '\r' } : {}
  for (const type of ['keyDown', 'keyUp']) {
    await tab.tab('Input.dispatchKeyEvent', { type, key, code: key, windowsVirtualKeyCode: CODES[key], ...text })
  }
}
const CODES = { Tab: 9, Enter: 13, End: 35, Home: 36, ArrowRight: 39, ArrowDown: 40 }
const focused = () => tab.evaluate(`document.activeElement.id || document.activeElement.closest("[id]")?.id`)

/** Everything can be reached and used without a mouse, and has a name for whoever hears the page. */
async function useByKeyboard(trace) {
  const reached = []
  for (let times = 0; times < 30 && !reached.includes('steps'); times += 1) {
    await press('Tab')
    reached.push(await focused())
  }
  const wanted = [
    'story',
    'bug',
    'seed',
    'next-seed',
    'share',
    'first',
    'back',
    'play',
    'forward',
    'last',
    'to-trouble',
    'scrub',
    'frame',
    'steps',
  ]
  assert.deepEqual(
    reached.filter((id) => wanted.includes(id)),
    wanted,
  )
  await press('ArrowDown')
  await press('ArrowDown')
  assert.equal((await tab.evaluate(SEEN)).now.split(' ')[0], '3')
  assert.equal(await focused(), 'steps')
  await tab.evaluate(`document.getElementById("frame").focus()`)
  await press('End')
  const last = await tab.evaluate(SEEN)
  assert.ok(
    last.now.startsWith(`${trace.steps.length} of ${trace.steps.length}`) && last.now.endsWith(trace.steps.at(-1).text),
    last.now,
  )
  assert.ok(last.address.endsWith(`step=${trace.steps.length - 1}`), last.address)
  await press('Home')
  await tab.evaluate(`document.getElementById("to-trouble").focus()`)
  await press('Enter')
  const trouble = ['lost', 'fault', 'stopped', 'refused', 'limit', 'over', 'arrived', 'violated']
  const first = trace.steps.findIndex((step, index) => index > 0 && trouble.includes(step.what))
  assert.equal((await tab.evaluate(SEEN)).now.split(' ')[0], String(first + 1))
  const { nodes } = await tab.tab('Accessibility.getFullAXTree')
  const named = ['button', 'combobox', 'slider', 'textbox', 'image', 'table']
  const controls = nodes.filter((node) => !node.ignored && named.includes(node.role?.value))
  assert.ok(controls.length >= 12, `${controls.length} controls`)
  for (const node of controls) assert.ok(node.name?.value || node.role.value === 'table', JSON.stringify(node))
  const slider = await tab.evaluate(`document.getElementById("scrub").getAttribute("aria-valuetext")`)
  assert.ok(slider.endsWith(trace.steps[first].text), slider)
}

try {
  for (const [width, [w, h]] of Object.entries(WIDTHS)) {
    await tab.tab('Emulation.setDeviceMetricsOverride', {
      width: w,
      height: h,
      deviceScaleFactor: 1,
      mobile: width === 'phone',
    })
    for (const [index, schedule] of SCHEDULES.entries()) {
      await open(schedule, traces[index].broken ? 1_000_000 : 10)
      const seen = await tab.evaluate(SEEN)
      compare(seen, traces[index])
      // whoever gets the address sees the same
      assert.ok(seen.address.includes(`story=${schedule.story}&seed=${schedule.seed}`), seen.address)
      if (pictures) {
        const { data } = await tab.tab('Page.captureScreenshot', { format: 'png' })
        writeFileSync(
          join(pictures, `${width}-${schedule.story}-${schedule.bug ?? 'honest'}.png`),
          Buffer.from(data, 'base64'),
        )
      }
    }
    await open(SCHEDULES[2])
    await useByKeyboard(traces[2])
  }
  // another story, a bug, and a seed that breaks it
  await tab.evaluate(`(() => {
        const choose = (id, value) => {
            document.getElementById(id).value = value;
            document.getElementById(id).dispatchEvent(new Event("change"));
        };
        choose("story", "redlock");
        choose("bug", "NoQuarantine");
        document.getElementById("search").click();
    })()`)
  await tab.until(`document.getElementById("verdict").textContent.startsWith("Violated")`)
  const found = new URLSearchParams((await tab.evaluate('location.hash')).slice(1))
  const [trace] = tracesOf(program, [{ story: 'redlock', seed: found.get('seed'), bug: 'NoQuarantine' }])
  compare(await tab.evaluate(SEEN), JSON.parse(trace))
  // the same page without a bug: the same seed breaks nothing
  await tab.evaluate(`location.hash = "#story=redlock&seed=${found.get('seed')}"`)
  await tab.until(`document.getElementById("verdict").textContent.startsWith("No property")`)
  // words that say nothing choose what there is
  await tab.evaluate(`location.hash = "#story=nonsense&seed=-1&bug=none&step=x"`)
  await tab.until(`location.hash === "#story=lost-reply&seed=1&step=0"`)
  assert.deepEqual(errors, [])
  const strangers = requests.filter(
    (url) => !url.startsWith('file:') && !url.startsWith('about:') && !url.startsWith('blob:'),
  )
  assert.deepEqual(strangers, [])
  console.log(
    `simulator: the page draws ${SCHEDULES.length} schedules as they are, at ${Object.keys(WIDTHS).join(' and ')} width`,
  )
} finally {
  await tab.close()
}
