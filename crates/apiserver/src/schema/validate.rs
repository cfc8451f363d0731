//! Validates an object against its schema. Texts, paths, error kinds and their order within a node
//! are those of a real API server.

use serde_json::{Map, Number, Value};

use super::{Additional, Bound, ListType, Rules, Schema, Type, format};
use crate::status::{FieldError, FieldErrorKind};

/// Path of errors that concern the object as a whole; what Go prints for a path that is nil.
const NO_PATH: &str = "<nil>";

impl Schema {
    /// Every broken rule of a whole object, empty if it is valid.
    pub fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.check(object, "", &mut errors);
        self.check_lists(object, "", &mut errors);
        errors
    }

    fn check(&self, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
        let typed = self.check_type(value, path, errors);
        if value.is_null() {
            self.rules.check_choices(value, path, errors);
            return;
        }
        self.rules.check_compositions(value, path, errors);
        match value {
            Value::String(text) => self.rules.check_string(text, path, errors),
            Value::Number(number) => self.check_number(number, path, errors),
            Value::Array(items) if typed => self.check_items(items, path, errors),
            _ => {}
        }
        self.rules.check_choices(value, path, errors);
        if let (Value::Object(fields), true) = (value, typed) {
            self.check_fields(fields, path, errors);
        }
    }

    fn check_type(&self, value: &Value, path: &str, errors: &mut Vec<FieldError>) -> bool {
        if value.is_null() && self.nullable {
            return true;
        }
        let allowed = match (self.int_or_string, self.kind) {
            (true, _) => "integer,string",
            (false, Some(kind)) => kind.as_str(),
            (false, None) => return true,
        };
        let found = type_name(value);
        let fits = match value {
            Value::Number(n) => {
                allowed == "number" || (allowed.contains("integer") && is_integral(n))
            }
            _ => allowed.split(',').any(|a| a == found),
        };
        if !fits {
            let detail = format!("{path} in body must be of type {allowed}: {found:?}");
            errors.push(FieldError::new(FieldErrorKind::TypeInvalid, shown(path), found, detail));
        }
        fits
    }

    fn check_number(&self, number: &Number, path: &str, errors: &mut Vec<FieldError>) {
        let rules = &self.rules;
        rules.check_range(self.kind, number, path, errors);
        let value = number.as_f64().unwrap_or_default();
        let mut fail = |detail: String| {
            errors.push(FieldError::invalid(path, Value::Number(number.clone()), detail));
        };
        if let Some(factor) = rules.multiple_of
            && (value / factor).fract() != 0.0
        {
            fail(format!("{path} in body should be a multiple of {}", limit(factor, number)));
        }
        if let Some(Bound { value: max, exclusive }) = rules.maximum
            && (value > max || (exclusive && value >= max))
        {
            let how = if exclusive { "less than" } else { "less than or equal to" };
            fail(format!("{path} in body should be {how} {}", limit(max, number)));
        }
        if let Some(Bound { value: min, exclusive }) = rules.minimum
            && (value < min || (exclusive && value <= min))
        {
            let how = if exclusive { "greater than" } else { "greater than or equal to" };
            fail(format!("{path} in body should be {how} {}", limit(min, number)));
        }
    }

    fn check_items(&self, items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
        if let Some(schema) = self.items.as_deref() {
            for (i, item) in items.iter().enumerate() {
                schema.check(item, &format!("{path}[{i}]"), errors);
            }
        }
        let rules = &self.rules;
        let length = items.len() as u64;
        if let Some(min) = rules.min_items.filter(|min| length < *min) {
            let detail = format!("{path} in body should have at least {min} items");
            errors.push(FieldError::invalid(path, length, detail));
        }
        if let Some(max) = rules.max_items.filter(|max| length > *max) {
            errors.push(too_many(path, length, max));
        }
        let repeated = |(i, item): (usize, &Value)| items[..i].contains(item);
        if rules.unique_items && items.iter().enumerate().any(repeated) {
            let detail = format!("{path} in body shouldn't contain duplicates");
            errors.push(FieldError::invalid(path, "", detail));
        }
    }

    fn check_fields(&self, fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
        let rules = &self.rules;
        let count = fields.len() as u64;
        if let Some(min) = rules.min_properties.filter(|min| count < *min) {
            let detail = format!("{path} in body should have at least {min} properties");
            errors.push(FieldError::invalid(shown(path), min, detail));
        }
        if let Some(max) = rules.max_properties.filter(|max| count > *max) {
            errors.push(too_many(shown(path), count, max));
        }
        for name in rules.required.iter().filter(|name| !fields.contains_key(*name)) {
            errors.push(FieldError::required(join(path, name), ""));
        }
        if self.embedded_resource {
            check_embedded(fields, path, errors);
        }
        for (name, value) in fields {
            if path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind") {
                continue;
            }
            let schema = self.properties.get(name).or(match &self.additional {
                Some(Additional::Schema(schema)) => Some(schema),
                _ => None,
            });
            if let Some(schema) = schema {
                schema.check(value, &join(path, name), errors);
            }
        }
    }

    /// Uniqueness in `set` and `map` lists, which a real server checks after everything else.
    fn check_lists(&self, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if let Some(schema) = self.field(name) {
                        schema.check_lists(value, &join(path, name), errors);
                    }
                }
            }
            Value::Array(items) => {
                let mut seen: Vec<Value> = Vec::with_capacity(items.len());
                for (i, item) in items.iter().enumerate() {
                    let here = format!("{path}[{i}]");
                    if let Some(identity) = self.identity(item) {
                        if seen.contains(&identity) {
                            let duplicate = FieldErrorKind::Duplicate;
                            errors.push(FieldError::new(duplicate, &here, identity, ""));
                        } else {
                            seen.push(identity);
                        }
                    }
                    if let Some(schema) = self.items.as_deref() {
                        schema.check_lists(item, &here, errors);
                    }
                }
            }
            _ => {}
        }
    }

    fn identity(&self, item: &Value) -> Option<Value> {
        match &self.list_type {
            ListType::Atomic => None,
            ListType::Set => Some(item.clone()),
            ListType::Map(keys) => {
                let item = item.as_object()?;
                let key = |k: &String| Some((k.clone(), item.get(k)?.clone()));
                Some(Value::Object(keys.iter().filter_map(key).collect()))
            }
        }
    }
}

// === impl Rules ===

impl Rules {
    fn check_choices(&self, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
        if self.choices.is_empty() || self.choices.contains(value) {
            return;
        }
        let supported: Vec<String> = self.choices.iter().map(bare).collect();
        let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(shown(path), value.clone(), &supported));
    }

    fn check_string(&self, text: &str, path: &str, errors: &mut Vec<FieldError>) {
        let length = text.chars().count() as u64;
        if let Some(max) = self.max_length.filter(|max| length > *max) {
            let detail = format!("may not be more than {max} byte{}", plural(max));
            errors.push(FieldError::new(FieldErrorKind::TooLong, path, text, detail));
        }
        if let Some(min) = self.min_length.filter(|min| length < *min) {
            let detail = format!("{path} in body should be at least {min} chars long");
            errors.push(FieldError::invalid(path, text, detail));
        }
        if let Some(pattern) = &self.pattern {
            let expected = match &pattern.regex {
                Ok(regex) if regex.is_match(text) => None,
                Ok(_) => Some(pattern.text.clone()),
                Err(why) => Some(format!("{}, but pattern is invalid: {why}", pattern.text)),
            };
            if let Some(expected) = expected {
                let detail = format!("{path} in body should match '{expected}'");
                errors.push(FieldError::invalid(path, text, detail));
            }
        }
        if let Some(format) = self.format.as_deref().filter(|f| !format::matches(f, text)) {
            let detail = format!("{path} in body must be of type {format}: {text:?}");
            errors.push(FieldError::new(FieldErrorKind::TypeInvalid, path, text, detail));
        }
    }

    fn check_range(
        &self,
        kind: Option<Type>,
        number: &Number,
        path: &str,
        errors: &mut Vec<FieldError>,
    ) {
        let Some(format) = self.format.as_deref() else { return };
        let value = number.as_f64().unwrap_or_default();
        let fits = match format {
            "int32" => value >= f64::from(i32::MIN) && value <= f64::from(i32::MAX),
            "int64" => number.is_i64() || is_integral(number) && !number.is_u64(),
            _ => true,
        };
        if !fits {
            let kind = kind.map_or("number", Type::as_str);
            let detail =
                format!("Checked value must be of type {kind} with format {format} in {path}");
            errors.push(FieldError::invalid(NO_PATH, "", detail));
        }
    }

    fn check_compositions(&self, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
        let failures = |schemas: &[Schema]| -> Vec<Vec<FieldError>> {
            let check = |schema: &Schema| {
                let mut found = Vec::new();
                schema.check(value, path, &mut found);
                found
            };
            schemas.iter().map(check).collect()
        };
        let complain = |detail: String| FieldError::invalid(NO_PATH, "", detail);

        if !self.any_of.is_empty() {
            let results = failures(&self.any_of);
            if results.iter().all(|found| !found.is_empty()) {
                errors
                    .push(complain(format!("{path:?} must validate at least one schema (anyOf)")));
                errors.extend(nearest(results));
            }
        }
        if !self.one_of.is_empty() {
            let results = failures(&self.one_of);
            let valid = results.iter().filter(|found| found.is_empty()).count();
            if valid != 1 {
                let found = match valid {
                    0 => "Found none valid".to_owned(),
                    n => format!("Found {n} valid alternatives"),
                };
                let rule = "must validate one and only one schema (oneOf)";
                errors.push(complain(format!("{path:?} {rule}. {found}")));
                if valid == 0 {
                    errors.extend(nearest(results));
                }
            }
        }
        if !self.all_of.is_empty() {
            let results = failures(&self.all_of);
            let valid = results.iter().filter(|found| found.is_empty()).count();
            errors.extend(results.into_iter().flatten());
            if valid < self.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                let rule = "must validate all the schemas (allOf)";
                errors.push(complain(format!("{path:?} {rule}{none}")));
            }
        }
        if let Some(schema) = self.not.as_deref()
            && failures(std::slice::from_ref(schema)).iter().all(Vec::is_empty)
        {
            errors.push(complain(format!("{path:?} must not validate the schema (not)")));
        }
    }
}

/// Of several alternatives that all failed, the one with the fewest errors.
fn nearest(results: Vec<Vec<FieldError>>) -> Vec<FieldError> {
    results.into_iter().min_by_key(Vec::len).unwrap_or_default()
}

fn check_embedded(fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        match fields.get(name).and_then(Value::as_str) {
            None | Some("") => {
                errors.push(FieldError::required(join(path, name), "must not be empty"));
            }
            Some(_) => {}
        }
    }
    if !fields.contains_key("metadata") {
        errors.push(FieldError::required(join(path, "metadata"), ""));
    }
}

fn too_many(path: &str, actual: u64, max: u64) -> FieldError {
    let detail = format!("must have at most {max} item{}", plural(max));
    FieldError::new(FieldErrorKind::TooMany, path, actual, detail)
}

fn plural(n: u64) -> &'static str {
    if n == 1 { "" } else { "s" }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn shown(path: &str) -> &str {
    if path.is_empty() { NO_PATH } else { path }
}

fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn is_integral(number: &Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|n| n.fract() == 0.0)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A limit as a real server prints it for this value: as a whole number for whole numbers, else in
/// the shortest form of Go's `%v`, which uses exponents below 1e-04 and from 1e+06 on.
fn limit(limit: f64, beside: &Number) -> String {
    if !beside.is_f64() {
        return format!("{}", limit as i64);
    }
    let exponent = limit.abs().log10().floor();
    if limit != 0.0 && !(-4.0..6.0).contains(&exponent) {
        let text = format!("{limit:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or_default();
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    format!("{limit}")
}
