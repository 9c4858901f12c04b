// Bundles the view into one file that loads nothing: view.html. With --check it
// says whether that file is what these sources make; with --host it writes out the
// host that the view is tested in.
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const folder = dirname(fileURLToPath(import.meta.url));

// The view never shows the library's own complaints, so it needs them in no more
// than one language.
const oneLanguage = {
  name: "one-language",
  setup(builder) {
    builder.onLoad({ filter: /[\\/]zod[\\/]v4[\\/]locales[\\/]index\.js$/ }, () => ({
      contents: `export { default as en } from "./en.js";`,
    }));
  },
};

const bundle = async (entry, options) => {
  const result = await build({
    absWorkingDir: folder,
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    charset: "ascii",
    legalComments: "none",
    target: ["es2022", "chrome109", "firefox115", "safari16"],
    logLevel: "warning",
    plugins: [oneLanguage],
    ...options,
  });
  return result.outputFiles[0].text.trim();
};

const view = async () => {
  const script = await bundle("src/main.ts", { format: "iife" });
  const style = await bundle("src/style.css", {});
  for (const [name, text, end] of [["script", script, "</script"], ["style", style, "</style"]]) {
    if (text.toLowerCase().includes(end) || text.includes("<!--")) throw new Error(`the ${name} would end too early in a page`);
  }
  return readFileSync(join(folder, "src", "page.html"), "utf8")
    .replace("/* style */", () => style)
    .replace("/* script */", () => script);
};

const target = join(folder, "view.html");
if (process.argv.includes("--host")) {
  process.stdout.write(await bundle("host/host.ts", { format: "iife" }));
} else if (process.argv.includes("--check")) {
  if (readFileSync(target, "utf8") !== (await view())) {
    console.error("mcp/view/view.html isn't what its sources make: npm run build --prefix mcp/view");
    process.exitCode = 1;
  }
} else {
  const page = await view();
  writeFileSync(target, page);
  console.log(`view.html: ${Math.round(Buffer.byteLength(page) / 1024)} KiB`);
}
