// Puts the page of the simulator together: pack.mjs ENGINE.wasm
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'

const root = join(dirname(fileURLToPath(import.meta.url)), '../..')
const read = (name) => readFileSync(join(root, 'docs/simulator', name), 'utf8')
const into = join(root, 'dist/simulator')

// in the order in which one uses the other
const SCRIPTS = ['engine.mjs', 'layout.mjs', 'moment.mjs', 'diagram.mjs', 'page.mjs']

/** The modules as one script: they share no name but what one exports and another imports. */
function joined() {
  const parts = SCRIPTS.map((name) =>
    read(name)
      .replaceAll(/^import [^;]*? from '[^']*'$/gm, '')
      .replaceAll(/^export /gm, ''),
  )
  const names = parts.flatMap((part) =>
    [...part.matchAll(/^(?:async )?(?:function|const|let|class) (\w+)/gm)].map((found) => found[1]),
  )
  const twice = names.filter((name, index) => names.indexOf(name) !== index)
  if (twice.length > 0) throw new Error(`two scripts of the page define ${twice}`)
  return `"use strict";\n(() => {\n${parts.join('\n')}\n})();\n`
}

const engine = gzipSync(readFileSync(process.argv[2]), { level: 9 }).toString('base64')
const fill = { '/*STYLE*/': read('page.css'), '/*ENGINE*/': engine, '/*SCRIPT*/': joined() }
let page = read('index.html')
for (const [mark, text] of Object.entries(fill)) {
  if (page.split(mark).length !== 2) throw new Error(`the page has not one ${mark}`)
  page = page.replace(mark, () => text)
}
mkdirSync(into, { recursive: true })
const file = join(into, 'index.html')
writeFileSync(file, page)
console.log(file)
