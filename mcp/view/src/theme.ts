// Has the view look like the host that it is in.
import { applyDocumentTheme, applyHostFonts, applyHostStyleVariables, type McpUiHostContext } from "@modelcontextprotocol/ext-apps";

import { reader } from "./time";

export const follow = (host: McpUiHostContext | undefined): void => {
  if (!host) return;
  if (host.theme) applyDocumentTheme(host.theme);
  if (host.styles?.variables) applyHostStyleVariables(host.styles.variables);
  if (host.styles?.css?.fonts) applyHostFonts(host.styles.css.fonts);
  const insets = host.safeAreaInsets;
  for (const side of ["top", "right", "bottom", "left"] as const) {
    document.documentElement.style.setProperty(`--inset-${side}`, `${insets?.[side] ?? 0}px`);
  }
  reader.locale = host.locale;
  reader.timeZone = host.timeZone;
};
