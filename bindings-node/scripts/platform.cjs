// Prints the name of this platform, as it stands in the names of native modules and packages.
const { platform } = require('../dist/platform.js')

console.log(platform())
