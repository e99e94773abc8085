// The simulator: WebAssembly in the page itself, packed and written in letters.

/** The bytes of the packed engine. */
function unpackLetters(letters) {
  const packed = atob(letters)
  return Uint8Array.from(packed, (letter) => letter.charCodeAt(0))
}

/** Makes the engine ready; what it says is text in its memory. */
export async function loadEngine(letters) {
  const stream = new Blob([unpackLetters(letters)]).stream().pipeThrough(new DecompressionStream('gzip'))
  const module = await WebAssembly.compile(await new Response(stream).arrayBuffer())
  return startEngine(module)
}

/** An engine of a compiled module. */
export async function startEngine(module) {
  let { exports } = await WebAssembly.instantiate(module, {})
  const call = (use) => {
    try {
      return use(exports)
    } catch (error) {
      // whatever stopped it may have left its memory in disorder
      exports = new WebAssembly.Instance(module, {}).exports
      throw error
    }
  }
  const text = (use) =>
    call((engine) => {
      const length = use(engine)
      const bytes = new Uint8Array(engine.memory.buffer, engine.output(), length)
      return new TextDecoder().decode(bytes)
    })
  return {
    stories: JSON.parse(text((engine) => engine.catalog())),
    /** The text of a schedule, as JSON. */
    play: (story, seed, bug) => text((engine) => engine.play(story, BigInt.asUintN(64, seed), bug)),
    /** The first of `count` seeds from `first` on with which a bug is caught, or null. */
    search: (story, bug, first, count) => {
      const found = BigInt.asUintN(
        64,
        call((engine) => engine.search(story, bug, first, BigInt(count))),
      )
      return found === 2n ** 64n - 1n ? null : found
    },
  }
}
