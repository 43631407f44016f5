// Sets the theme that was chosen before the page is painted, so that it does not flash.
try {
  const theme = localStorage.getItem("strand-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* The system's theme then. */ }
